package lab

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Commander is where commands run: a pod, a node.
type Commander interface {
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
}

var answer = regexp.MustCompile(`bytes from .*icmp_seq=(\d+).*`)

// Echoes runs ping with args until count answers came, and returns how many of
// the first count requests were answered; an error names those that were not, or
// what was answered twice. Without -w ping waits for the last answer no longer
// than twice the longest so far, and a machine that is busy for a moment looks
// like a lost frame (iputils, __schedule_exit); with it ping goes on for up to
// that many seconds, 10 unless args say so, and which were answered tells.
func Echoes(ctx context.Context, from Commander, count int, args ...string) (int, error) {
	args = append([]string{"-n", "-c", strconv.Itoa(count), "-w", "10"}, args...)
	text, err := from.Command(ctx, "ping", args...).CombinedOutput()
	out := string(text)
	seen := map[int]bool{}
	for _, m := range answer.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		if seen[n] || strings.Contains(m[0], "DUP!") {
			return len(seen), fmt.Errorf("ping %v: answered twice: %s", args, m[0])
		}
		if n <= count {
			seen[n] = true
		}
	}
	if len(seen) == count {
		return count, nil
	}
	answered := slices.Sorted(maps.Keys(seen))
	if len(answered) > 20 {
		var missing []int
		for n := 1; n <= count && len(missing) < 20; n++ {
			if !seen[n] {
				missing = append(missing, n)
			}
		}
		return len(seen), fmt.Errorf("ping %v: %d of %d answered, not %v: %v", args, len(seen), count, missing, err)
	}
	return len(seen), fmt.Errorf("ping %v: answered %v of %d: %v\n%s", args, answered, count, err, out)
}
