package agent

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A start that cannot succeed must fail before it asks an older agent to go.
func TestCPUsAreTriedBeforeAnythingElse(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	good := 0
	for !set.IsSet(good) {
		good++
	}
	for name, test := range map[string]struct {
		cpus []int
		ok   bool
	}{
		"none":      {nil, true},
		"one":       {[]int{good}, true},
		"twice":     {[]int{good, good}, true},
		"negative":  {[]int{-100}, false},
		"too large": {[]int{maxCPUs}, false},
		"not there": {[]int{good, maxCPUs - 1}, set.IsSet(maxCPUs - 1)},
	} {
		c := Config{NodeName: "node1", Manifests: "m", CPUs: test.cpus, Workers: max(1, len(test.cpus))}
		err := c.Validate()
		if test.ok && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.ok && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "--cpus")) {
			t.Errorf("%s: %v, want ErrConfig naming --cpus", name, err)
		}
	}
}
