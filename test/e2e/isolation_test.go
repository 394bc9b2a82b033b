package e2e

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// isolate writes network red with an isolation, "" for none.
func (c *cluster) isolate(isolation string) {
	c.t.Helper()
	extra := "mtu: 1446"
	if isolation != "" {
		extra += "\nisolation: " + isolation
	}
	c.must(c.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, extra))
}

// outcome is what became of a few echo requests.
type outcome struct{ arrived, answered bool }

func (o outcome) String() string {
	return fmt.Sprintf("arrived %t, answered %t", o.arrived, o.answered)
}

// trial pings one address and looks for the requests in the target's pod.
type trial struct {
	from, to *lab.Pod
	address  netip.Addr
	want     outcome
}

// trials are those between two pods, over both families.
func trials(from, to *lab.Pod, want outcome) (all []trial) {
	for _, f := range families {
		all = append(all, trial{from, to, f.of(to), want})
	}
	return all
}

const trialPings = 3

// run makes all trials at once and says which came out otherwise. The number
// makes their marks different from those of any other run.
func (c *cluster) run(number int, all []trial) error {
	watches := make([]*watch, len(all))
	marks := make([]string, len(all))
	for i, x := range all {
		marks[i] = fmt.Sprintf("isolate-%03d-%03d.", number%1000, i)[:16]
		watches[i] = watchNetns(c.t, x.to.Name, x.to.Netns(), marks[i])
	}
	got := make([]outcome, len(all))
	var group sync.WaitGroup
	for i, x := range all {
		group.Go(func() {
			out, _ := x.from.Run(c.ctx, "ping", "-q", "-c", fmt.Sprint(trialPings), "-i0.05", "-W1", "-p", hex.EncodeToString([]byte(marks[i])), x.address.String())
			m := echoes.FindStringSubmatch(out)
			got[i].answered = m != nil && m[2] != "0"
		})
	}
	group.Wait()
	var wrong []string
	for i, x := range all {
		n, _ := watches[i].count(marks[i])
		for end := time.Now().Add(5 * time.Second); x.want.arrived && n == 0 && time.Now().Before(end); n, _ = watches[i].count(marks[i]) {
			time.Sleep(10 * time.Millisecond) // the watcher is behind
		}
		if got[i].arrived = n > 0; got[i] != x.want {
			wrong = append(wrong, fmt.Sprintf("%s to %s at %s: %v, want %v", x.from.Name, x.to.Name, x.address, got[i], x.want))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}

func (c *cluster) denied(p *lab.Pod) uint64 {
	return portOf(c.t, c.status(p.Node), p.Device).Drops["segment_denied"]
}

// The segments' rules on the sending side, toward a pod of the same node and of
// another one, v4 and v6 alike, changed while everything runs.
func TestIsolationOnTheSendingSide(t *testing.T) {
	c := newCluster(t, lab.Routed)
	var pods []*lab.Pod
	for number := 1; number <= 4; number++ { // pod1 and pod2 on one node, 3 and 4 on the other
		if number%2 == 1 {
			c.node(lab.NodeOptions{})
		}
		o := podOptions(c.Nodes()[(number-1)/2], number)
		o.Segment = 2 - number%2 // 1, 2, 1, 2
		p, err := c.AddPod(o)
		c.must(err)
		pods = append(pods, p)
	}
	c.start(2)
	one, two, farOne, farTwo := pods[0], pods[1], pods[2], pods[3]
	yes, no, noAnswer := outcome{true, true}, outcome{}, outcome{arrived: true}
	number := 0
	for _, policy := range []struct {
		name, isolation                          string
		toTwo, toFarOne, toFarTwo, fromTwo       outcome // from pod1; pod2 to pod1
		deniedAtOne, deniedAtTwo, deniedAtFarTwo bool
	}{
		{name: "none", toTwo: yes, toFarOne: yes, toFarTwo: yes, fromTwo: yes},
		{name: "allow but 1 to 2", isolation: "{default: allow, rules: [{from: [1], to: [2]}]}",
			toTwo: no, toFarOne: yes, toFarTwo: no, fromTwo: noAnswer, deniedAtOne: true},
		{name: "deny", isolation: "{default: deny}", deniedAtOne: true, deniedAtTwo: true},
		{name: "deny but 1 to 1", isolation: "{default: deny, rules: [{from: [1], to: [1]}]}",
			toFarOne: yes, deniedAtOne: true, deniedAtTwo: true},
		{name: "deny but 1 to 2, one way", isolation: "{default: deny, rules: [{from: [1], to: [2]}]}",
			toTwo: noAnswer, toFarTwo: noAnswer, deniedAtOne: true, deniedAtTwo: true, deniedAtFarTwo: true},
		{name: "none again", toTwo: yes, toFarOne: yes, toFarTwo: yes, fromTwo: yes},
	} {
		t.Run(policy.name, func(t *testing.T) {
			c.isolate(policy.isolation)
			all := append(append(append(trials(one, two, policy.toTwo), trials(one, farOne, policy.toFarOne)...),
				trials(one, farTwo, policy.toFarTwo)...), trials(two, one, policy.fromTwo)...)
			testnet.Eventually(t, patience, "the policy", func() error { number++; return c.run(number, all) })
			before := map[*lab.Pod]uint64{one: c.denied(one), two: c.denied(two), farTwo: c.denied(farTwo)}
			number++
			if err := c.run(number, all); err != nil {
				t.Errorf("once it held: %v", err)
			}
			for p, want := range map[*lab.Pod]bool{one: policy.deniedAtOne, two: policy.deniedAtTwo, farTwo: policy.deniedAtFarTwo} {
				if n := c.denied(p) - before[p]; (n > 0) != want {
					t.Errorf("%s: %d denied, want any: %t", p.Name, n, want)
				}
			}
		})
	}
	c.account()
}

// The receiver believes the segment in the SID, not the sender: one that enforces
// nothing, the kernel's SRv6, is denied here.
func TestIsolationOnTheReceivingSide(t *testing.T) {
	k := newKernelPeer(t)
	k.decapsulate()
	k.encapsulate("l2encap.red", k.linux.Locator.Addr().Next())
	k.isolate("{default: deny, rules: [{from: [7], to: [7]}]}")
	denied := func() uint64 { return k.status(k.pod.Node).Uplinks[0].Drops["segment_denied"] }
	number := 0
	for _, segment := range []uint32{7, 9, 0, 7} {
		t.Run(fmt.Sprint("from ", segment), func(t *testing.T) {
			via := fmt.Sprintf("encap seg6 mode l2encap.red segs %s dev %s", k.sid(k.pod.Node, segment), lab.UplinkDevice)
			k.on(k.linux,
				fmt.Sprintf("ip route replace %s/32 %s", k.pod.IP4(), via),
				fmt.Sprintf("ip -6 route replace %s/128 %s", k.pod.IP6(), via))
			allowed := segment == 7
			all := trials(k.station, k.pod, outcome{allowed, allowed})
			testnet.Eventually(t, patience, "the policy", func() error { number++; return k.run(number, all) })
			before := denied()
			number++
			if err := k.run(number, all); err != nil {
				t.Errorf("once it held: %v", err)
			}
			if allowed {
				if n := denied() - before; n != 0 {
					t.Errorf("%d denied", n)
				}
				return
			}
			want := uint64(len(all) * trialPings)
			_, err := k.pod.Node.WaitStatus(k.ctx, func(s status.Status) error {
				if n := s.Uplinks[0].Drops["segment_denied"] - before; n < want {
					return fmt.Errorf("%d of %d denied", n, want)
				}
				return nil
			})
			k.must(err)
		})
	}
}
