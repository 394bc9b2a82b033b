package testnet

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func netnsID(t *testing.T) string {
	t.Helper()
	id, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRunEntersAndComesBack(t *testing.T) {
	n := New(t, "run")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := netnsID(t)
	var inside string
	n.Run(t, func() { inside = netnsID(t) })
	if inside == home {
		t.Fatal("f ran in the caller's namespace")
	}
	if got := netnsID(t); got != home {
		t.Fatalf("came back to %s, was in %s", got, home)
	}
	want := errors.New("from inside")
	if err := n.Do(func() error { return want }); !errors.Is(err, want) {
		t.Fatalf("Do returned %v", err)
	}
	if got := netnsID(t); got != home {
		t.Fatalf("after an error: in %s, was in %s", got, home)
	}
}

func TestVethOptionsAndPing(t *testing.T) {
	a, b := New(t, "a"), New(t, "b")
	Veth(t,
		End{NS: a, Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1600, Queues: 4, Addrs: []string{"10.0.0.1/24", "fd00::1/64"}},
		End{NS: b, Name: "eth0", MAC: "02:00:00:00:00:02", MTU: 1400, Addrs: []string{"10.0.0.2/24", "fd00::2/64"}})
	la, lb := a.Link(t, "eth0").Attrs(), b.Link(t, "eth0").Attrs()
	if la.HardwareAddr.String() != "02:00:00:00:00:01" || la.MTU != 1600 || la.NumRxQueues != 4 || la.NumTxQueues != 4 {
		t.Errorf("end a: %v mtu %d queues %d/%d", la.HardwareAddr, la.MTU, la.NumRxQueues, la.NumTxQueues)
	}
	if lb.HardwareAddr.String() != "02:00:00:00:00:02" || lb.MTU != 1400 || lb.NumRxQueues != 1 {
		t.Errorf("end b: %v mtu %d queues %d", lb.HardwareAddr, lb.MTU, lb.NumRxQueues)
	}
	RequireTool(t, "ping")
	a.Exec(t, "ping", "-c1", "-W5", "10.0.0.2")
	a.Exec(t, "ping", "-c1", "-W5", "fd00::2")
	if _, err := a.Try("ping", "-c1", "-W1", "10.0.0.3"); err == nil {
		t.Error("an address nobody has answered")
	}
}

func TestBPFFSIsOne(t *testing.T) {
	dir := BPFFS(t)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type != unix.BPF_FS_MAGIC {
		t.Fatalf("filesystem type %#x, want bpffs %#x", st.Type, unix.BPF_FS_MAGIC)
	}
}

func TestLeftoversSeesEachKind(t *testing.T) {
	RequireRoot(t)
	before := settledFDs()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	var left string
	t.Run("inner", func(t *testing.T) {
		New(t, "left")
		BPFFS(t)
		left = strings.Join(Leftovers(before, 0), "\n")
	})
	for _, want := range []string{"/dev/null", "netns " + prefix, "mount "} {
		if !strings.Contains(left, want) {
			t.Errorf("leftovers do not name %q:\n%s", want, left)
		}
	}
	f.Close()
	if left := Leftovers(before, 5*time.Second); len(left) > 0 {
		t.Errorf("after closing: %q", left)
	}
}

// What a killed run left goes; what a living process has stays.
func TestSweepDead(t *testing.T) {
	RequireRoot(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone := prefix + "-" + strconv.Itoa(dead.Process.Pid) + "-1-x"
	if out, err := exec.Command("ip", "netns", "add", gone).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), prefix+"-"+strconv.Itoa(dead.Process.Pid)+"-bpffs-1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	mine := New(t, "mine")
	sweepDead()
	if _, err := os.Stat(filepath.Join(runDir, gone)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", gone, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if _, err := os.Stat(mine.Path()); err != nil {
		t.Errorf("a living process's namespace was swept: %v", err)
	}
}

func TestOwnerPID(t *testing.T) {
	for name, want := range map[string]int{
		"picot-test-12-1-a": 12, "picot-test-x-1": 0, "picot-12-1": 0, "picot-test-12": 0, "": 0,
	} {
		if got := ownerPID(name); got != want {
			t.Errorf("ownerPID(%q) = %d, want %d", name, got, want)
		}
	}
}
