package xdp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"picot.dev/picot/internal/testnet"
)

// childEnv makes the test binary a process that attaches, says so, and waits to
// be killed.
const childEnv = "PICOT_XDP_TEST_CHILD"

// ensureEnv makes it a process that says what EnsureBPFFS says of a directory.
const ensureEnv = "PICOT_XDP_TEST_ENSURE"

type childOrder struct {
	Options AttachOptions
	Unpin   bool // hold the link by its descriptor only
	Socket  bool // put an AF_XDP socket into slot 0
}

func TestMain(m *testing.M) {
	if order := os.Getenv(childEnv); order != "" {
		if err := child(order); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if dir := os.Getenv(ensureEnv); dir != "" {
		if err := EnsureBPFFS(dir); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("fine")
		}
		os.Exit(0)
	}
	os.Exit(testnet.Main(m))
}

func child(order string) error {
	var c childOrder
	if err := json.Unmarshal([]byte(order), &c); err != nil {
		return err
	}
	p, err := Attach(c.Options)
	if err != nil {
		return err
	}
	if c.Unpin {
		if err := removePins(p.dir); err != nil {
			return err
		}
	}
	if c.Socket {
		if _, err := openSocket(p, c.Options.IfIndex, 0); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	select {}
}

// removePins removes a pin directory, its link as it lives.
func removePins(dir string) error {
	var errs []error
	for _, file := range pinFiles {
		errs = append(errs, removeFile(filepath.Join(dir, file)))
	}
	return errors.Join(append(errs, removeFile(dir))...)
}
