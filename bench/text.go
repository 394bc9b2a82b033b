package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText prints the report as a table.
func (r *Report) WriteText(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s, Linux %s, %d x %s, %s\nload average %.1f at the start, %.1f at the end; %d pairs, %s a run\n\n",
		m.Date, m.Kernel, m.CPUs, m.CPU, m.Go, m.Load, m.LoadEnd, r.Pairs, r.Run)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BENCHMARK\tNAME\tOURS\tPEER\tUNIT\tFIGURE median [min..max]\tGOAL\tOUTCOME\tNOTE")
	for _, row := range r.Rows {
		peer, figure := "", ""
		if row.Peer.N > 0 {
			peer = number(row.Peer.Median)
		}
		if row.Figure.N > 0 {
			figure = fmt.Sprintf("%s [%s..%s]", number(row.Figure.Median), number(row.Figure.Min), number(row.Figure.Max))
		}
		ours := ""
		if row.Ours.N > 0 {
			ours = number(row.Ours.Median)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			row.Benchmark, row.Name, ours, peer, row.Unit, figure, row.Goal, row.Outcome, row.Note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Setup) > 0 {
		fmt.Fprintln(w)
	}
	for _, s := range r.Setup {
		fmt.Fprintln(w, "*", s)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// number prints about four digits.
func number(x float64) string {
	switch a := max(x, -x); {
	case a >= 1e6:
		return fmt.Sprintf("%.3fM", x/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.3f", x)
}
