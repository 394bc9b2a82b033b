package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Outcome says what a figure means for its goal.
type Outcome string

// Outcomes of a row.
const (
	Pass          Outcome = "pass"
	Fail          Outcome = "FAIL"
	NotMeaningful Outcome = "not meaningful" // what it is measured by did not hold
	Info          Outcome = "-"              // no goal
	Skipped       Outcome = "skipped"        // the peer is not there
)

// Goal is what Figure must be: at least or at most Bound. The zero Goal is
// none.
type Goal struct {
	AtLeast bool    `json:"at_least,omitempty"`
	AtMost  bool    `json:"at_most,omitempty"`
	Bound   float64 `json:"bound,omitempty"`
}

func atLeast(x float64) Goal { return Goal{AtLeast: true, Bound: x} }
func atMost(x float64) Goal  { return Goal{AtMost: true, Bound: x} }

func (g Goal) judge(x float64) Outcome {
	switch {
	case g.AtLeast && x >= g.Bound, g.AtMost && x <= g.Bound:
		return Pass
	case g.AtLeast, g.AtMost:
		return Fail
	}
	return Info
}

func (g Goal) String() string {
	switch {
	case g.AtLeast:
		return fmt.Sprintf(">= %.4g", g.Bound)
	case g.AtMost:
		return fmt.Sprintf("<= %.4g", g.Bound)
	}
	return ""
}

// Row is one figure: Figure against Goal. In a comparison Figure is the ratio
// of Ours to Peer, pair by pair.
type Row struct {
	Benchmark string  `json:"benchmark"`
	Name      string  `json:"name"`
	Unit      string  `json:"unit"` // of Ours and Peer, and of Figure when there is no peer
	OursName  string  `json:"ours_name"`
	PeerName  string  `json:"peer_name,omitempty"`
	Ours      Spread  `json:"ours"`
	Peer      Spread  `json:"peer"`
	Figure    Spread  `json:"figure"`
	Goal      Goal    `json:"goal"`
	Outcome   Outcome `json:"outcome"`
	Note      string  `json:"note,omitempty"`
	// OursRuns and PeerRuns are the runs, pair by pair.
	OursRuns []float64 `json:"ours_runs,omitempty"`
	PeerRuns []float64 `json:"peer_runs,omitempty"`
}

// Compared makes the row of a comparison from its pairs.
func compared(benchmark, name, unit string, ours, peer []float64, g Goal) Row {
	f := spreadOf(ratios(ours, peer))
	return Row{
		Benchmark: benchmark, Name: name, Unit: unit, Ours: spreadOf(ours), Peer: spreadOf(peer),
		Figure: f, Goal: g, Outcome: g.judge(f.Median), OursRuns: ours, PeerRuns: peer,
	}
}

// single makes a row without a peer.
func single(benchmark, name, unit string, s Spread, g Goal) Row {
	return Row{Benchmark: benchmark, Name: name, Unit: unit, Ours: s, Figure: s, Goal: g, Outcome: g.judge(s.Median)}
}

func skipped(benchmark, name, why string) Row {
	return Row{Benchmark: benchmark, Name: name, Outcome: Skipped, Note: why}
}

// Machine is where and when a report was made.
type Machine struct {
	Date    string  `json:"date"`
	Kernel  string  `json:"kernel"`
	CPU     string  `json:"cpu"`
	CPUs    int     `json:"cpus"`
	Go      string  `json:"go"`
	Load    float64 `json:"load"`     // 1-minute average at the start
	LoadEnd float64 `json:"load_end"` // and at the end
}

// Report is the outcome of a run.
type Report struct {
	Machine Machine  `json:"machine"`
	Pairs   int      `json:"pairs"`
	Run     string   `json:"run"` // duration of one run
	Rows    []Row    `json:"rows"`
	Setup   []string `json:"setup"` // how the peers were set up
}

// Missed counts the rows whose goal was not met.
func (r *Report) Missed() (n int) {
	for _, row := range r.Rows {
		if row.Outcome == Fail {
			n++
		}
	}
	return n
}

func machine() Machine {
	m := Machine{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), CPUs: runtime.NumCPU(), Go: runtime.Version(), Load: loadAverage(),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	info, _ := os.ReadFile("/proc/cpuinfo") // only to be shown
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			m.CPU = strings.Trim(name, " \t:\n")
			break
		}
	}
	return m
}

// loadAverage is the 1-minute load average, 0 if unknown.
func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	_, _ = fmt.Sscan(string(b), &load)
	return load
}
