package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/doctor"
	"picot.dev/picot/internal/testnet"
)

// doctorSays runs picot with a line of arguments.
func doctorSays(t *testing.T, line string) (out string, err error) {
	t.Helper()
	cmd, b := root(), &bytes.Buffer{}
	cmd.SetArgs(strings.Fields(line))
	cmd.SetOut(b)
	cmd.SetErr(b)
	err = cmd.ExecuteContext(t.Context())
	return b.String(), err
}

// What is wrong on the command line is one clear error, and nothing is checked.
func TestDoctorRefusesWrongInput(t *testing.T) {
	for line, say := range map[string]string{
		"-o xml":                           "--output \"xml\": give table, json or yaml",
		"--node-name Not_A_Name":           "no DNS name",
		"--uplink up0,up0":                 "--uplink: up0 is given twice",
		"--uplink a/b":                     "\"a/b\" is no device name",
		"--uplink up0 --workload up0":      "is an uplink, too",
		"--workers 0":                      "--workers: 0: give 1 to 64",
		"--workers 2 --cpus 0":             "1 CPUs for 2 workers",
		"--max-ports 0":                    "--max-ports: 0: give 1 to 16384",
		"--sid-function 0":                 "--sid-function",
		"--manifests /nonexistent":         "--manifests: stat /nonexistent",
		"--kubeconfig /nonexistent":        "--kubeconfig: stat /nonexistent",
		"--manifests /tmp --in-cluster":    "2 of them given",
		"--manifests /tmp --kubeconfig /x": "2 of them given",
		"now":                              "unknown command \"now\"",
		"--bogus":                          "unknown flag: --bogus",
	} {
		t.Run(line, func(t *testing.T) {
			out, err := doctorSays(t, "doctor "+line)
			if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
				t.Errorf("said %v, want %q", err, say)
			}
			if strings.Contains(out, "OUTCOME") {
				t.Errorf("checked all the same: %s", out)
			}
		})
	}
}

// A CPU that is not there fails, one that is does not; the exit says whether
// anything fails, and every form of output says the same.
func TestDoctorTellsOfCPUs(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	there := 0
	for !set.IsSet(there) {
		there++
	}
	for cpu, want := range map[int]doctor.Outcome{1023: doctor.Fail, there: doctor.OK} {
		line := fmt.Sprintf("doctor --node-name n1 --run-dir %s --max-ports 1 --workers 1 --cpus %d", t.TempDir(), cpu)
		out, err := doctorSays(t, line+" -o json")
		var r doctor.Report
		if jerr := json.Unmarshal([]byte(out), &r); jerr != nil {
			t.Fatalf("%v: %s", jerr, out)
		}
		if (err != nil) != (r.Failed > 0) {
			t.Errorf("%d fail, and the exit says %v", r.Failed, err)
		}
		found := false
		for _, c := range r.Checks {
			if c.Check == "cpus" {
				found = true
				if c.Outcome != want || want == doctor.Fail && !strings.Contains(c.Mend, "--cpus") {
					t.Errorf("CPU %d: %+v", cpu, c)
				}
			}
		}
		if !found {
			t.Error("CPUs are not looked at")
		}
	}
	line := fmt.Sprintf("doctor --node-name n1 --run-dir %s --cpus 1023", t.TempDir())
	table, _ := doctorSays(t, line)
	quiet, _ := doctorSays(t, line+" -q")
	yaml, _ := doctorSays(t, line+" -o yaml")
	for out, want := range map[string]string{table: "=> name CPUs", quiet: "=> name CPUs", yaml: "outcome: fail"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(quiet, "\nok ") || !strings.Contains(table, "\nok ") {
		t.Errorf("quiet is not quieter:\n%s", quiet)
	}
}

// An agent with another --run-dir is told of, with the mend.
func TestDoctorTellsOfAnAgentElsewhere(t *testing.T) {
	testnet.RequireRoot(t)
	pins := filepath.Join(t.TempDir(), "n1")
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(pins)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // as an agent does
		t.Fatal(err)
	}
	runDir := t.TempDir()
	out, _ := doctorSays(t, fmt.Sprintf("doctor --node-name n1 --bpffs %s --run-dir %s --max-ports 1 -o json", filepath.Dir(pins), runDir))
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range r.Checks {
		if c.Part != "agent" || c.Check != "runs" {
			continue
		}
		if c.Outcome != doctor.Warn || !strings.Contains(c.Found, "n1 runs, and does not answer at "+runDir) || !strings.Contains(c.Mend, "--run-dir") {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Errorf("nothing is said: %s", out)
}

// A copied command line of an agent is taken, flag by flag, with the same kinds of
// values; what doctor ignores is not in its help.
func TestDoctorTakesEveryFlagOfTheAgent(t *testing.T) {
	values := map[string]string{
		"bool": "true", "string": "x", "stringSlice": "x,y", "int": "1", "intSlice": "0,1", "uint8": "7", "uint16": "7", "uint32": "7", "float64": "0.5", "duration": "1s",
	}
	n := 0
	agentCommand().Flags().VisitAll(func(a *pflag.Flag) {
		n++
		value, ok := values[a.Value.Type()]
		if !ok {
			t.Fatalf("--%s is a %s: give the test a value", a.Name, a.Value.Type())
		}
		lines := [][]string{{"--" + a.Name + "=" + value}, {"--" + a.Name, value}}
		if a.NoOptDefVal != "" {
			lines[1] = []string{"--" + a.Name}
		}
		for _, line := range lines {
			cmd := doctorCommand()
			if err := cmd.ParseFlags(line); err != nil {
				t.Errorf("%q: %v", line, err)
			} else if args := cmd.Flags().Args(); len(args) > 0 {
				t.Errorf("%q: left %q", line, args)
			}
		}
	})
	if n < 60 {
		t.Errorf("only %d flags", n)
	}
	line := "doctor --node-name n1 --run-dir " + t.TempDir() + " --max-ports 1 --metrics-addr 127.0.0.1:9 --refresh 10s --sweep-grace 0s --fixed-source --takeover" +
		" --lease-interval 5s --gateway --gateway-mode overlay --log-level debug --answer-rate 7 --learn-expiry 10m --cpus 1023 -o json"
	out, err := doctorSays(t, line)
	if err == nil || !strings.Contains(err.Error(), "checks fail") || !strings.Contains(out, `"checks"`) {
		t.Errorf("a copied command line: %v: %s", err, out)
	}
	help, err := doctorSays(t, "doctor --help")
	if err != nil || !strings.Contains(help, "--max-ports") || strings.Contains(help, "--metrics-addr") || strings.Contains(help, "--takeover") {
		t.Errorf("help: %v: %s", err, help)
	}
	if _, err := doctorSays(t, "doctor --refresh soon"); err == nil || !strings.Contains(err.Error(), "--refresh") {
		t.Errorf("a value that is none: %v", err)
	}
}
