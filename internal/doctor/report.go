package doctor

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
)

// Outcome is what became of a check.
type Outcome string

// The outcomes. A check that could not be made warns: it is no OK.
const (
	OK            Outcome = "ok"
	Warn          Outcome = "warn" // works, or may; not as it should
	Fail          Outcome = "fail" // the agent, or a part of it, cannot work so
	NotApplicable Outcome = "n/a"
)

// Check is one thing that was looked at.
type Check struct {
	Part    string  `json:"part"` // kernel, place, device, mtu, locator, agent
	Check   string  `json:"check"`
	Object  string  `json:"object,omitempty"` // device, node, path
	Outcome Outcome `json:"outcome"`
	Found   string  `json:"found"`
	Mend    string  `json:"mend,omitempty"` // a command or a setting; set when warn or fail
}

// Report is all checks of a node.
type Report struct {
	Node   string  `json:"node"`
	Failed int     `json:"failed"`
	Warned int     `json:"warned"`
	Checks []Check `json:"checks"`
}

// newReport counts.
func newReport(node string, checks []Check) Report {
	r := Report{Node: node, Checks: checks}
	for _, c := range checks {
		switch c.Outcome {
		case Fail:
			r.Failed++
		case Warn:
			r.Warned++
		}
	}
	return r
}

// about makes the checks of one part and object.
type about struct{ part, object string }

func (a about) ok(check, format string, args ...any) Check {
	return Check{a.part, check, a.object, OK, fmt.Sprintf(format, args...), ""}
}

func (a about) none(check, format string, args ...any) Check {
	return Check{a.part, check, a.object, NotApplicable, fmt.Sprintf(format, args...), ""}
}

func (a about) warn(check, mend, format string, args ...any) Check {
	return Check{a.part, check, a.object, Warn, fmt.Sprintf(format, args...), mend}
}

func (a about) fail(check, mend, format string, args ...any) Check {
	return Check{a.part, check, a.object, Fail, fmt.Sprintf(format, args...), mend}
}

// What is to be done about a check that could not be made, and about what the
// kernel forbids a process that has the capabilities.
const (
	mendRights    = "run picot doctor as root, with all capabilities, in the network namespace of the agent; where it was, " + mendForbidden
	mendForbidden = "see what else forbids it: lockdown (/sys/kernel/security/lockdown), a seccomp or LSM profile, a user namespace"
	mendUnmade    = "mend what the text says, and run picot doctor again"
)

// unmade is a check that could not be made.
func (a about) unmade(check string, err error) Check {
	if isPermission(err) {
		return a.withoutRights(check, err)
	}
	return a.warn(check, mendUnmade, unmadeFor, err)
}

const unmadeFor = "could not be checked: %v"

// withoutRights is a check that could not be made for want of rights.
func (a about) withoutRights(check string, err error) Check {
	return a.warn(check, mendRights, unmadeFor, err)
}

// isPermission says that the caller was not allowed to. A program that the verifier
// refuses is none of that: its EACCES is about the program.
func isPermission(err error) bool {
	var refused *ebpf.VerifierError
	return errors.Is(err, fs.ErrPermission) && !errors.As(err, &refused)
}
