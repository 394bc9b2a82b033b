package learning

import (
	"bufio"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// TestScripts runs the scenarios of testdata. A line is a command; see run.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r := &script{t: t}
			checks := 0
			for lines := bufio.NewScanner(f); lines.Scan(); {
				r.line++
				words := strings.Fields(strings.SplitN(lines.Text(), "#", 2)[0])
				if len(words) == 0 {
					continue
				}
				if slices.Contains([]string{"fdb", "neigh", "event", "writes", "probes"}, words[0]) {
					checks++
				}
				r.run(words)
			}
			if checks == 0 {
				t.Fatal("the script checks nothing")
			}
		})
	}
}

type script struct {
	t    *testing.T
	line int
	sim  *sim
	net  string
}

func (r *script) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("line %d: "+format, append([]any{r.line}, args...)...)
}

// run carries out one line:
//
//	nodes A B ...                      a cluster with default options
//	network NAME PREFIX...             hosted on every node
//	endpoint NODE NAME [MAC [IP...]]   with its port, up; a MAC is claimed
//	endpoint-gone NODE NAME
//	port NODE NAME up|down|gone
//	segment NODE NAME N
//	strong|weak|garp|rarp|na|probe NODE NAME MAC [IP]   a frame
//	+DURATION                          time passes
//	every DURATION for DURATION COMMAND...
//	host NODE NAME MAC IP              answers probes, until no-host
//	cut|heal NODE                      from the API
//	dead|alive NODE                    as the cluster judges it
//	watch NODE DURATION                watch events come so late
//	api NODE DURATION                  writes are answered so late
//	clock NODE DURATION                the wall clock steps
//	restart NODE                       no memory but the cluster's
//	clear NODE MAC                     release
//	learning on|off
//	static MAC NODE/NAME               somebody else's static FDB entry, or no-static MAC
//	fdb MAC none|NODE/NAME[/static]    what the cluster must have
//	neigh IP none|NODE/NAME/MAC[/static]
//	event KIND N                       so many so far
//	writes OP N                        so many since the last such line of that OP
//	probes N                           sent so far, by all nodes
func (r *script) run(w []string) {
	r.t.Helper()
	s := r.sim
	if d, ok := strings.CutPrefix(w[0], "+"); ok {
		s.advance(r.duration(d))
		return
	}
	if s == nil && w[0] != "nodes" {
		r.fatalf("begin with nodes")
	}
	switch w[0] {
	case "nodes":
		r.sim = newSim(r.t, Options{}, w[1:]...)
		r.sim.verbose = testing.Verbose()
	case "network":
		r.net = w[1]
		n := Network{Name: w[1], Learning: true, LinkLocal: true}
		for _, p := range w[2:] {
			n.Prefixes = append(n.Prefixes, netip.MustParsePrefix(p))
		}
		s.setNetwork(n)
	case "endpoint":
		ep := Endpoint{EndpointRef: EndpointRef{EndpointKey: EndpointKey{"default", w[2]}}, Network: r.net}
		if len(w) > 3 {
			ep.MAC = mustMAC(r.t, w[3])
			for _, a := range w[4:] {
				ep.Addresses = append(ep.Addresses, mustIP(r.t, a))
			}
		}
		s.setEndpoint(s.node(w[1]), ep)
		s.setPort(s.node(w[1]), w[2], true)
	case "endpoint-gone":
		s.endpointGone(s.node(w[1]), w[2])
	case "segment":
		n := s.node(w[1])
		ep := n.eps[w[2]]
		ep.Segment = uint32(r.number(w[3]))
		s.setEndpoint(n, ep)
	case "port":
		if w[3] == "gone" {
			s.portGone(s.node(w[1]), w[2])
		} else {
			s.setPort(s.node(w[1]), w[2], w[3] == "up")
		}
	case "strong", "weak", "garp", "rarp", "na", "probe":
		r.frame(w)
	case "every":
		every, total := r.duration(w[1]), r.duration(w[3])
		for ; total > 0; total -= every {
			r.run(w[4:])
			s.advance(every)
		}
	case "host":
		s.hosts[host{w[1], w[2], mustMAC(r.t, w[3]), mustIP(r.t, w[4])}] = true
	case "no-host":
		delete(s.hosts, host{w[1], w[2], mustMAC(r.t, w[3]), mustIP(r.t, w[4])})
	case "cut", "heal":
		s.node(w[1]).cut = w[0] == "cut"
		s.pump()
	case "dead", "alive":
		s.setAlive(w[1], w[0] == "alive")
	case "watch":
		s.node(w[1]).delay = r.duration(w[2]).Nanoseconds()
	case "api":
		s.node(w[1]).lag = r.duration(w[2]).Nanoseconds()
	case "clock":
		s.skewed = true
		s.node(w[1]).skew += r.duration(w[2]).Microseconds()
	case "restart":
		s.start(s.node(w[1]))
	case "clear":
		n := s.node(w[1])
		n.core.Release(FDB(r.net, mustMAC(r.t, w[2])), s.now(n))
		s.pump()
	case "learning":
		for _, n := range s.nodes {
			net := n.nets[len(n.nets)-1]
			net.Learning = w[1] == "on"
			n.core.SetNetwork(net, s.now(n))
		}
		s.pump()
	case "static":
		node, name, _ := strings.Cut(w[2], "/")
		s.put(FDB(r.net, mustMAC(r.t, w[1])), Binding{Static: true, Node: node, Endpoint: EndpointRef{EndpointKey{"default", name}, "other"}})
	case "no-static":
		s.remove(FDB(r.net, mustMAC(r.t, w[1])))
	default:
		r.check(w)
	}
}

func (r *script) frame(w []string) {
	class, flags := arpnd.Strong, Flags(0)
	switch w[0] {
	case "weak":
		class = arpnd.Weak
	case "garp", "rarp":
		flags = Announce
	case "na":
		flags = Announce | Advert
	case "probe":
		class, flags = arpnd.Weak, ARPProbe
	}
	var ip packet.IP
	if len(w) > 4 {
		ip = mustIP(r.t, w[4])
	}
	r.sim.frame(r.sim.node(w[1]), w[2], mustMAC(r.t, w[3]), ip, class, flags)
}

func (r *script) check(w []string) {
	r.t.Helper()
	s := r.sim
	switch w[0] {
	case "fdb", "neigh":
		var k Key
		if w[0] == "fdb" {
			k = FDB(r.net, mustMAC(r.t, w[1]))
		} else {
			k = Neighbor(r.net, mustIP(r.t, w[1]))
		}
		got := "none"
		if b, ok := s.store[k]; ok {
			got = b.Node + "/" + b.Endpoint.Name
			if k.IsNeighbor() {
				got += "/" + b.MAC.String()
			}
			if b.Static {
				got += "/static"
			}
		}
		if got != w[2] {
			r.fatalf("%s %s is %s, want %s", w[0], w[1], got, w[2])
		}
	case "event":
		kind := strings.Join(w[1:len(w)-1], " ")
		got := 0
		for k, n := range s.events {
			if k.String() == kind {
				got += n
			}
		}
		if want := r.number(w[len(w)-1]); got != want {
			r.fatalf("%d events %q, want %d", got, kind, want)
		}
	case "writes":
		for op := range numOps {
			if op.String() == w[1] {
				if want := r.number(w[2]); s.ops[op] != want {
					r.fatalf("%d writes %s, want %d", s.ops[op], op, want)
				}
				s.ops[op] = 0
				return
			}
		}
		r.fatalf("no operation %q", w[1])
	case "probes":
		got := 0
		for _, n := range s.nodes {
			got += int(n.core.Stats().Probes)
		}
		if want := r.number(w[1]); got != want {
			r.fatalf("%d probes, want %d", got, want)
		}
	default:
		r.fatalf("unknown command %q", w[0])
	}
}

func (r *script) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		r.fatalf("%v", err)
	}
	return d
}

func (r *script) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		r.fatalf("%v", err)
	}
	return n
}

func sortedNames(m map[string]Endpoint) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
