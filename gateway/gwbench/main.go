// Command gwbench measures the gateway controller against real ovsdb-servers without northd: one
// node with many networks on br-ex, many external neighbours and many other nodes.
//
//	go run ./gateway/gwbench [-followers 500] [-neighbours 100] [-nodes 500] [-json]
//
// Every time is that of the whole path: event, plan, transactions, and the row read back from the
// server by another client.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"picot.dev/picot/gateway"
	"picot.dev/picot/gateway/gwbench/site"
	"picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/gateway/topology"
)

// Figure is one measured number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  string  `json:"goal,omitempty"`
}

func main() {
	followers := flag.Int("followers", 500, "user-defined networks on br-ex")
	neighbours := flag.Int("neighbours", 100, "external neighbours the source knows")
	nodes := flag.Int("nodes", 500, "other nodes")
	asJSON := flag.Bool("json", false, "print JSON")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to a file")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fmt.Fprintln(os.Stderr, "gwbench:", err)
			os.Exit(1)
		}
		_ = pprof.StartCPUProfile(f)
	}
	show := func(f Figure) { fmt.Printf("%-62s %12.2f %-8s %s\n", f.Name, f.Value, f.Unit, f.Goal) }
	if *asJSON {
		show = func(Figure) {}
	}
	figures, err := run(*followers, *neighbours, *nodes, show)
	pprof.StopCPUProfile()
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(figures)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gwbench:", err)
		os.Exit(1)
	}
}

type bench struct {
	*site.Site
	c       *gateway.Controller
	figures []Figure
	show    func(Figure)
}

func (b *bench) add(value float64, unit, goal, format string, args ...any) {
	f := Figure{fmt.Sprintf(format, args...), value, unit, goal}
	b.figures = append(b.figures, f)
	b.show(f)
}

func run(followers, neighbours, nodes int, show func(Figure)) (_ []Figure, err error) {
	s, err := site.New("n1")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b := &bench{Site: s, show: show}
	if err := b.build(followers); err != nil {
		return nil, err
	}
	cfg := gateway.Config{Node: "n1", DisableUDNARPNDPFlood: true, NetworkSegmentation: true, IPv4: true, IPv6: true, Static: gateway.StaticAlways, RunDir: s.Dir()}
	for _, r := range []struct {
		to     *ovsdb.Remote
		remote string
	}{{&cfg.OVS, s.OVS.Remote()}, {&cfg.NB, s.NB.Remote()}, {&cfg.SB, s.SB.Remote()}} {
		if *r.to, err = ovsdb.ParseRemote(r.remote, ovsdb.Files{}); err != nil {
			return nil, err
		}
	}
	if b.c, err = gateway.New(cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for _, step := range []func() error{
		func() error { return b.topology(followers) },
		func() error { return b.dynamic(followers, neighbours) },
		func() error { return b.fixed(followers, nodes) },
	} {
		if err := step(); err != nil {
			return b.figures, err
		}
	}
	return b.figures, nil
}

// settle lets what the monitors still have to say arrive.
func (b *bench) settle() { time.Sleep(3 * time.Second) }

func (b *bench) build(followers int) error {
	if err := b.AddBridge("br-ex", "eth0"); err != nil {
		return err
	}
	if err := b.Map("physnet:br-ex"); err != nil {
		return err
	}
	for i := -1; i < followers; i++ {
		if err := b.AddNetwork("br-ex", network(i), "172.16.0.2/12", "fd00:18::2/64"); err != nil {
			return err
		}
	}
	return nil
}

func network(i int) string {
	if i < 0 {
		return ""
	}
	return fmt.Sprint("net", i)
}

// until polls until f holds; f may be costly, so the poll is slow unless fine.
func until(f func() (bool, error)) (time.Duration, error) {
	start := time.Now()
	for {
		ok, err := f()
		if ok || err != nil {
			return time.Since(start), err
		}
		if time.Since(start) > 5*time.Minute {
			return 0, fmt.Errorf("not converged in 5 minutes")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (b *bench) topology(followers int) error {
	d, err := until(func() (bool, error) {
		g := b.c.Status().Groups
		return len(g) == 1 && len(g[0].Followers) == followers, nil
	})
	b.add(d.Seconds(), "s", "", "start to groups of %d followers", followers)
	return err
}

func (b *bench) dynamic(followers, neighbours int) error {
	c := b.c.Counters()
	inserted := func() uint64 { return c.MirrorWrites[0].Load() }
	ip := func(i int) string { return fmt.Sprintf("172.16.1.%d", i) }
	mac := func(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", i) }
	before := stats(b.c, ovsdb.Southbound)
	if err := b.LearnMany("", neighbours, ip, mac, time.Now()); err != nil {
		return err
	}
	rows := uint64(followers * neighbours)
	d, err := until(func() (bool, error) { return inserted() >= rows, nil })
	if err != nil {
		return err
	}
	b.add(d.Seconds(), "s", "", "mirror: initial sync, %d rows", rows)
	b.add(float64(rows)/d.Seconds(), "rows/s", "", "mirror: initial sync")
	b.add(stats(b.c, ovsdb.Southbound)-before, "", "", "mirror: transactions of it")

	b.settle()
	changed := c.MirrorWrites[1].Load()
	before = stats(b.c, ovsdb.Southbound)
	if err := b.Learn("", ip(1), "02:00:00:00:ff:ff", time.Now()); err != nil {
		return err
	}
	d, err = until(func() (bool, error) { return c.MirrorWrites[1].Load() >= changed+uint64(followers), nil })
	if err != nil {
		return err
	}
	b.add(d.Seconds()*1000, "ms", "<= 100", "mirror: MAC change on %d followers", followers)
	b.settle()
	b.add(b.c.Status().MirrorLagMs, "ms", "<= 100", "mirror: of it, event to last write")
	b.add(stats(b.c, ovsdb.Southbound)-before, "", "1", "mirror: transactions of it")

	have, err := b.Bindings(ovsdb.Southbound, ovsdb.TableMACBinding)
	if err != nil {
		return err
	}
	right := 0
	for k, v := range have {
		port, addr, _ := strings.Cut(k, " ")
		if port != topology.RouterPort("", "n1") && addr == ip(1) && v.MAC == "02:00:00:00:ff:ff" {
			right++
		}
	}
	if right != followers || len(have) != followers*neighbours+neighbours {
		return fmt.Errorf("%d of %d rows have the new MAC, %d rows in all", right, followers, len(have))
	}

	// the steady load: the source's timestamps move, nothing is due
	writes := c.MirrorWrites[2].Load()
	start, cpu := time.Now(), cpuTime()
	// the writer updates by index, which scans the table: few are enough
	n := min(neighbours, 20)
	for i := range n {
		m := mac(i)
		if i == 1 {
			m = "02:00:00:00:ff:ff"
		}
		if err := b.Learn("", ip(i), m, time.Now()); err != nil {
			return err
		}
	}
	b.add((cpuTime()-cpu).Seconds()/float64(n)*1e3, "ms", "", "mirror: CPU for a timestamp within the cooldown (with its writer)")
	b.add(float64(c.MirrorWrites[2].Load()-writes), "rows", "0", "mirror: written for %d timestamps within the cooldown (%v)", n, time.Since(start).Round(time.Millisecond))
	b.memory("after the mirror", b.SB.PID())
	return nil
}

func inputs(nodes int, changed, extra bool) gateway.Inputs {
	in := gateway.Inputs{Synced: true, Nodes: []static.Node{node("n1", "172.16.0.2", site.MAC)}}
	if extra {
		nodes++
	}
	for i := range nodes {
		mac := fmt.Sprintf("0a:58:ac:%02x:%02x:%02x", 0x10, i>>8, i&0xff)
		if changed && i == 0 {
			mac = "0a:58:ac:ff:ff:ff"
		}
		in.Nodes = append(in.Nodes, node(fmt.Sprint("node", i), fmt.Sprintf("172.17.%d.%d", i/250, 1+i%250), mac))
	}
	return in
}

func node(name, ip, mac string) static.Node {
	return static.Node{Name: name, InternalIPs: []netip.Addr{netip.MustParseAddr(ip)},
		L3Gateway: fmt.Sprintf(`{"default":{"mode":"shared","mac-address":%q,"ip-addresses":["%s/12"],"vlan-id":"0"}}`, mac, ip)}
}

func (b *bench) fixed(followers, nodes int) error {
	c := b.c.Counters()
	step := func(in gateway.Inputs, kind static.Kind, rows int) (time.Duration, float64, error) {
		counter := &c.StaticWrites[kind]
		want := counter.Load() + uint64(rows)
		before := stats(b.c, ovsdb.Northbound)
		b.c.SetInputs(in)
		d, err := until(func() (bool, error) { return counter.Load() >= want, nil })
		return d, stats(b.c, ovsdb.Northbound) - before, err
	}
	rows := followers * nodes
	cpu := cpuTime()
	d, tx, err := step(inputs(nodes, false, false), static.Insert, rows)
	if err != nil {
		return err
	}
	b.add(d.Seconds(), "s", goal(rows >= 250_000, "<= 15"), "static: initial sync, %d rows", rows)
	b.add(float64(rows)/d.Seconds(), "rows/s", "", "static: initial sync")
	b.add((cpuTime() - cpu).Seconds(), "s", "", "static: CPU of this process for it")
	b.add(tx, "", "", "static: transactions of it")
	b.settle()
	b.memory("with the static rows", b.NB.PID())
	if d, tx, err = step(inputs(nodes, true, false), static.Update, followers); err != nil {
		return err
	}
	b.add(d.Seconds()*1000, "ms", "", "static: a node's MAC changes, %d rows", followers)
	b.add(tx, "", "", "static: transactions of it")
	b.settle()
	if d, tx, err = step(inputs(nodes, true, true), static.Insert, followers); err != nil {
		return err
	}
	b.add(d.Seconds()*1000, "ms", "", "static: a node joins, %d rows", followers)
	b.add(tx, "", "", "static: transactions of it")
	b.settle()
	before := stats(b.c, ovsdb.Northbound)
	b.c.SetInputs(inputs(nodes, true, true))
	time.Sleep(3 * time.Second)
	b.add(stats(b.c, ovsdb.Northbound)-before, "", "0", "static: transactions for unchanged input")
	have, err := b.Bindings(ovsdb.Northbound, ovsdb.TableStaticMACBinding)
	if err == nil && len(have) != rows+followers {
		err = fmt.Errorf("%d static rows, want %d", len(have), rows+followers)
	}
	return err
}

func goal(applies bool, text string) string {
	if applies {
		return text
	}
	return ""
}

// stats gives a database's transactions so far.
func stats(c *gateway.Controller, database string) float64 {
	for _, s := range c.Samples() {
		if s.Name == "transactions_total" && len(s.Labels) == 2 && s.Labels[1] == database {
			return s.Value
		}
	}
	return 0
}

func (b *bench) memory(when string, server int) {
	runtime.GC()
	b.add(rss(os.Getpid())/1024, "MiB", "", "RSS of this process %s", when)
	b.add(rss(server)/1024, "MiB", "", "RSS of its ovsdb-server %s", when)
}

// rss gives a process's resident memory in KiB.
func rss(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb float64
			_, _ = fmt.Sscan(v, &kb)
			return kb
		}
	}
	return 0
}
