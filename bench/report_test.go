package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func someReport() *Report {
	r := &Report{Machine: Machine{Date: "2026-01-02", CPUs: 2}, Pairs: 3, Run: "1s", Setup: []string{"how"}}
	row := compared("veth", "ours / <peer>", "frames/s", []float64{1e6, 2e6, 3e6}, []float64{1e6, 1e6, 1e6}, atLeast(2.5))
	row.OursName, row.PeerName = "ours", "<peer>"
	r.Rows = []Row{row, single("walk", "alone", "ns", spreadOf([]float64{24.94}), atMost(25)), skipped("veth", "absent", "why")}
	return r
}

func TestReportAsText(t *testing.T) {
	var b bytes.Buffer
	if err := someReport().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2.000 [1.000..3.000]", ">= 2.5", "FAIL", "24.9", "pass", "skipped", "why", "* how"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestMissedCountsFailuresOnly(t *testing.T) {
	if n := someReport().Missed(); n != 1 {
		t.Errorf("missed %d, want 1", n)
	}
}

func TestReportDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := someReport().WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil || len(back.Rows) != 3 || back.Rows[0].Figure.Median != 2 {
		t.Errorf("%v: %+v", err, back)
	}
	plots, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(plots) != 1 {
		t.Fatalf("plots %v, %v: want one, of the comparison", plots, err)
	}
	svg, err := os.ReadFile(plots[0])
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
	if n := bytes.Count(svg, []byte("<circle")); n != 2*3+2 {
		t.Errorf("%d dots, want one a run and two in the legend", n)
	}
}
