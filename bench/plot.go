package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// WriteDir writes the report into a directory: report.txt, report.json and one
// SVG a comparison.
func (r *Report) WriteDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("directory for the report: %w", err)
	}
	var text bytes.Buffer
	err := r.WriteText(&text)
	data, jerr := json.MarshalIndent(r, "", "  ")
	if err = errors.Join(err, jerr); err != nil {
		return err
	}
	files := map[string][]byte{"report.txt": text.Bytes(), "report.json": append(data, '\n')}
	for _, row := range r.Rows {
		if row.Peer.N > 0 {
			files[fileName(row.Benchmark+"-"+row.Name)+".svg"] = plot(row)
		}
	}
	for name, data := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return err
}

var notInFileName = regexp.MustCompile(`[^a-z0-9]+`)

func fileName(s string) string {
	return strings.Trim(notInFileName.ReplaceAllString(strings.ToLower(s), "-"), "-")
}

// plot draws the pairs of a comparison: for each run a dot, its partner beside
// it, and a line between the two.
func plot(r Row) []byte {
	const width, height, left, right, top, bottom = 640, 300, 70, 20, 46, 40
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="18" font-size="14">%s</text>`+"\n", left, html.EscapeString(r.Name))
	fmt.Fprintf(&b, `<text x="%d" y="36" fill="#555">ratio %s [%s..%s] %s: %s</text>`+"\n", left,
		number(r.Figure.Median), number(r.Figure.Min), number(r.Figure.Max), html.EscapeString(r.Goal.String()), html.EscapeString(string(r.Outcome)))
	most := max(r.Ours.Max, r.Peer.Max) * 1.05
	if most <= 0 {
		most = 1
	}
	y := func(v float64) float64 { return top + (height-top-bottom)*(1-v/most) }
	for i := range 5 {
		v := most * float64(i) / 4
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`+"\n",
			left, width-right, y(v), y(v), left-6, y(v)+4, number(v))
	}
	n := max(1, len(r.OursRuns))
	step := float64(width-left-right) / float64(n)
	for i := range min(len(r.OursRuns), len(r.PeerRuns)) {
		x := left + step*(float64(i)+0.5)
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#bbb"/>`, x-step/6, x+step/6, y(r.OursRuns[i]), y(r.PeerRuns[i]))
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="#0b62a4"/><circle cx="%.1f" cy="%.1f" r="4" fill="#d9822b"/>`+"\n",
			x-step/6, y(r.OursRuns[i]), x+step/6, y(r.PeerRuns[i]))
	}
	fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="#0b62a4"/><text x="%d" y="%d">%s</text>`, left, height-14, left+10, height-10, html.EscapeString(r.OursName))
	fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="#d9822b"/><text x="%d" y="%d">%s, %s; pairs in the order they ran</text>`+"\n",
		left+110, height-14, left+120, height-10, html.EscapeString(r.PeerName), html.EscapeString(r.Unit))
	b.WriteString("</svg>\n")
	return b.Bytes()
}
