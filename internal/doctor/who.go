package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The kernel does not name the owner of a program or a socket; who holds a
// descriptor of it, /proc does.

// holders finds the processes with a descriptor that is matches, as "name[pid]",
// this process apart.
func holders(is func(fd, info string) bool) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == os.Getpid() {
			continue
		}
		fds, err := os.ReadDir(p + "/fd")
		if err != nil {
			continue // gone, or not ours to look at
		}
		if slices.ContainsFunc(fds, func(e os.DirEntry) bool { return is(p+"/fd/"+e.Name(), p+"/fdinfo/"+e.Name()) }) {
			name, _ := os.ReadFile(p + "/comm")
			found = append(found, fmt.Sprintf("%s[%d]", strings.TrimSpace(string(name)), pid))
		}
	}
	return found
}

// whoHasProgram are those who have it open, or its link.
func whoHasProgram(id, link uint32) string {
	line := fmt.Sprintf("prog_id:\t%d\n", id)
	found := holders(func(fd, info string) bool {
		target, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(target, "anon_inode:bpf") {
			return false
		}
		text, err := os.ReadFile(info)
		return err == nil && strings.Contains(string(text), line)
	})
	if len(found) == 0 {
		if link != 0 {
			return "no process has it open: its link is pinned"
		}
		return "no process has it open: it was attached without a link"
	}
	return "held by " + strings.Join(found, ", ")
}

// whoHasXSKs are the processes with AF_XDP sockets; which device they are bound to
// the kernel tells only by CONFIG_XDP_SOCKETS_DIAG.
func whoHasXSKs() string {
	found := holders(func(fd, _ string) bool {
		target, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(target, "socket:") {
			return false
		}
		var name [32]byte
		n, err := unix.Getxattr(fd, "system.sockprotoname", name[:])
		return err == nil && n > 0 && unix.ByteSliceToString(name[:n]) == "XDP"
	})
	if len(found) == 0 {
		return "of a process that cannot be seen from here"
	}
	return "processes with AF_XDP sockets: " + strings.Join(found, ", ")
}

// programName asks the kernel; empty if it does not tell.
func programName(id uint32) (string, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

// linkOf is the id of the bpf_link that has the program on the device; 0: none has.
func linkOf(program uint32, index int) (uint32, error) {
	var all link.Iterator
	defer all.Close()
	for all.Next() {
		info, err := all.Link.Info()
		if err != nil {
			return 0, fmt.Errorf("bpf link %d: %w", all.ID, err)
		}
		if x := info.XDP(); x != nil && x.Ifindex == uint32(index) && info.Program == ebpf.ProgramID(program) {
			return uint32(all.ID), nil
		}
	}
	return 0, all.Err()
}

// heldQueues are the queues another AF_XDP socket has: a socket in copy mode and
// without frames cannot be bound there. Only for devices no agent uses.
func heldQueues(index, queues int) (held []int, err error) {
	for q := range queues {
		err := bindOnce(index, q)
		switch {
		case err == nil:
		case errors.Is(err, unix.EBUSY):
			held = append(held, q)
		case q > 0 && errors.Is(err, unix.EINVAL):
			return held, nil // a queue that is not in use
		default:
			return held, err
		}
	}
	return held, nil
}
