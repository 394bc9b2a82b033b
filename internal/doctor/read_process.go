package doctor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is what a process may take of the kernel.
type Process struct {
	PID     int    // of the agent; 0: of this process, for want of an agent that can be seen
	LockAny bool   // CAP_IPC_LOCK
	Memlock uint64 // RLIMIT_MEMLOCK, soft: that one counts; bytes
	Files   uint64 // RLIMIT_NOFILE, hard: the agent raises the soft one
}

// whose says whose limits they are.
func (p *Process) whose() string {
	if p.PID != 0 {
		return fmt.Sprintf("of the agent, process %d", p.PID)
	}
	return "of this shell, and an agent's service may have another"
}

// readProcess looks at the agent's process, or at this one where it cannot be seen.
func readProcess(pid int) Process {
	if pid > 0 {
		if p, err := processOf(strconv.Itoa(pid)); err == nil {
			p.PID = pid
			return p
		}
	}
	p, err := processOf("thread-self")
	if err != nil { // no /proc
		return Process{Memlock: math.MaxUint64, Files: math.MaxUint64}
	}
	return p
}

var errNoLimit = errors.New("the kernel does not tell")

// processOf reads proc_pid_limits(5) and CapEff of proc_pid_status(5).
func processOf(name string) (p Process, err error) {
	limits, err := os.ReadFile("/proc/" + name + "/limits")
	if err != nil {
		return p, err
	}
	status, err := os.ReadFile("/proc/" + name + "/status")
	if err != nil {
		return p, err
	}
	soft, _, err1 := limitIn(string(limits), "Max locked memory")
	_, hard, err2 := limitIn(string(limits), "Max open files")
	effective, err3 := strconv.ParseUint(strings.TrimSpace(lineOf(string(status), "CapEff:")), 16, 64)
	return Process{LockAny: effective&(1<<unix.CAP_IPC_LOCK) != 0, Memlock: soft, Files: hard}, errors.Join(err1, err2, err3)
}

// lineOf is what follows name on its line.
func lineOf(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return rest
		}
	}
	return ""
}

func limitIn(text, name string) (soft, hard uint64, err error) {
	fields := strings.Fields(lineOf(text, name))
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("%s: %w", name, errNoLimit)
	}
	var errs [2]error
	for i, to := range []*uint64{&soft, &hard} {
		if fields[i] == "unlimited" {
			*to = unix.RLIM_INFINITY
			continue
		}
		*to, errs[i] = strconv.ParseUint(fields[i], 10, 64)
	}
	return soft, hard, errors.Join(errs[:]...)
}
