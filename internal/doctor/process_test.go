package doctor

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/testnet"
)

// The limits are the agent's, whatever this process may; without an agent they are
// this process's.
func TestLimitsAreTheAgents(t *testing.T) {
	testnet.RequireRoot(t)
	agent := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -Sl 32 && ulimit -Hl 48 && ulimit -Sn 200 && ulimit -Hn 300 && exec sleep 60")
	agent.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}} // no CAP_IPC_LOCK
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	c := &Config{Workers: 1, MaxPorts: 1, BPFFS: t.TempDir(), RunDir: t.TempDir()}
	of := func(pid int) Process { return readHost(c, &Facts{Agent: Agent{PID: pid}}).Process }

	want := Process{PID: agent.Process.Pid, Memlock: 32 << 10, Files: 300}
	testnet.Eventually(t, 10*time.Second, "the agent's limits", func() error {
		if got := of(want.PID); got != want {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})

	var files, lock unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lock); err != nil {
		t.Fatal(err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	want = Process{LockAny: has[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0, Memlock: lock.Cur, Files: files.Max}
	for _, pid := range []int{0, 1 << 30} { // no agent, one that cannot be seen
		if got := of(pid); got != want {
			t.Errorf("of process %d: %+v, want this one's: %+v", pid, got, want)
		}
	}
}

func TestLimitsAsTheKernelPrintsThem(t *testing.T) {
	const text = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max locked memory         65536                unlimited            bytes     \n" +
		"Max open files            1024                 x                    files     \n"
	if soft, hard, err := limitIn(text, "Max locked memory"); soft != 65536 || hard != unix.RLIM_INFINITY || err != nil {
		t.Errorf("%d, %d, %v", soft, hard, err)
	}
	for _, name := range []string{"Max open files", "Max pending signals"} {
		if _, _, err := limitIn(text, name); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
