package gen

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// ReceiveInNAPI makes the named veth end receive in NAPI without an XDP
// program, so that a [Generator] at its peer reaches it: GRO on. The kernel
// tells the peer only when GRO changes while the end is up, so it is turned off
// and on, and the end must be up.
func ReceiveInNAPI(device string) error {
	runtime.LockOSThread() // the command starts in this thread's namespace
	defer runtime.UnlockOSThread()
	for _, state := range []string{"off", "on"} {
		out, err := exec.Command("ethtool", "-K", device, "gro", state).CombinedOutput()
		if err != nil {
			return fmt.Errorf("turn GRO of %s %s: %w: %s", device, state, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
