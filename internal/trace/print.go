package trace

import (
	"fmt"
	"io"
	"strings"
)

// Print writes r for people, in columns that a tabwriter lines up.
func Print(w io.Writer, r *Result) {
	row := func(name, format string, a ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, a...)) }
	row("frame", "%s", r.Frame.Text)
	for _, s := range r.Steps {
		if s.Step != "verdict" {
			row(s.Step, "%s", s.Found)
		}
	}
	row("VERDICT", "%s", strings.TrimSpace(r.Verdict+" "+r.Reason))
	row("", "%s", r.Meaning)
	if r.Look != "" {
		row("look at", "%s", r.Look)
	}
	if o := r.Out; o != nil {
		to := o.Device
		switch {
		case o.Endpoint != "":
			to += " (" + o.Endpoint + ")"
		case o.Node != "":
			to += ", to node " + o.Node
		}
		row("leaves by", "%s", to)
		if x := o.Outer; x != nil {
			row("outer", "%s > %s, flow label %#05x, next hop %s, %d bytes of IP, MTU %d", x.Source, x.SID, x.FlowLabel, x.NextHop, x.Length, o.MTU)
			if len(x.Segments) > 0 {
				row("", "by way of %s", strings.Join(x.Segments, ", "))
			}
		}
		row("as", "%s", o.Frame.Text)
	}
	for _, c := range r.Claims {
		who := c.MAC
		if c.IP != "" {
			who += " with " + c.IP
		}
		row("learning", "is told that %s is here, %s evidence, unless it was a moment ago", who, c.Evidence)
	}
	for _, n := range r.Notes {
		row("note", "%s", n)
	}
}
