package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTraceWrongArguments: what is wrong with a frame is said before any agent is
// asked, and once.
func TestTraceWrongArguments(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no capture"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, say string }{
		{"trace", "no --in"},
		{"trace va", "unknown command"},
		{"trace --in va", "no frame: give --frame or --read"},
		{"trace --in va --frame 02zz", `--frame: character 3, 'z', is no hex digit`},
		{"trace --in va --dst-mac 02", `--dst-mac "02": not a MAC address`},
		{"trace --in va --dst 10.0.0", `--dst "10.0.0": not an address`},
		{"trace --in va --dst 10.0.0.1 -o bogus", "give table, json or yaml"},
		{"trace --in va --read /nonexistent", "--read: open /nonexistent"},
		{"trace --in va --read " + text, "neither pcap nor pcapng"},
		{"trace --in va --read " + text + " --frame 02", "--read beside --frame"},
		{"trace --in va --dst 10.0.0.1 --number 2", "--number without --read"},
		{"trace --in va --dst 10.0.0.1 --run-dir /nonexistent", "no agent answers at /nonexistent/picot.sock: start one"},
	} {
		t.Run(c.line, func(t *testing.T) {
			cmd := root()
			cmd.SetArgs(strings.Fields(c.line))
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "\n") {
				t.Errorf("said %v, want %q", err, c.say)
			}
		})
	}
}
