package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"picot.dev/picot/gateway/flows"
)

func FuzzParseUpdates(f *testing.F) {
	full := make([]byte, vendorStatsLen+updateFullLen)
	u := full[vendorStatsLen:]
	binary.BigEndian.PutUint16(u, updateFullLen)
	binary.BigEndian.PutUint16(u[2:], updateDeleted)
	binary.BigEndian.PutUint16(u[6:], flows.PrioritySteer)
	binary.BigEndian.PutUint64(u[16:], flows.Cookie)
	f.Add(full)
	f.Add(full[:len(full)-1])
	f.Add(append(full, 0, 8, 0, 3, 0, 0, 0, 1)) // abbreviated
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, u := range parseUpdates(body) {
			if u.steering() && u.event > updateModified {
				t.Errorf("%+v names a flow", u)
			}
		}
	})
}

func TestParseUpdates(t *testing.T) {
	body := make([]byte, vendorStatsLen+updateFullLen+8)
	u := body[vendorStatsLen:]
	binary.BigEndian.PutUint16(u, updateFullLen)
	binary.BigEndian.PutUint16(u[2:], updateDeleted)
	binary.BigEndian.PutUint16(u[6:], flows.PrioritySteer)
	binary.BigEndian.PutUint64(u[16:], flows.Cookie)
	binary.BigEndian.PutUint16(u[24:], 8)
	binary.BigEndian.PutUint16(u[26:], 3)
	got := parseUpdates(body)
	if len(got) != 2 || got[0] != (update{updateDeleted, flows.PrioritySteer, 0, flows.Cookie}) || got[1].steering() {
		t.Errorf("%+v", got)
	}
}

// Flows with anything a repair cannot encode are left to the full check, never encoded wrongly.
func TestFlowModRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, f := range []flows.Flow{
		{Match: "arp,in_port=1,nw_ttl=3", Actions: "NORMAL"},
		{Match: "arp,in_port=1,dl_dst=zz", Actions: "NORMAL"},
		{Match: "arp,in_port=1,dl_dst=02:00:00:00:00:01/zz", Actions: "NORMAL"},
		{Match: "arp,dl_vlan=5000", Actions: "NORMAL"},
		{Match: "icmp6,icmp_type=300", Actions: "NORMAL"},
		{Match: "arp,in_port=x", Actions: "NORMAL"},
		{Match: "arp", Actions: "strip_vlan,NORMAL"},
		{Match: "", Actions: "NORMAL"},
	} {
		if _, ok := flowMod(f); ok {
			t.Errorf("%s was encoded", f)
		}
	}
	b, ok := flowMod(flows.Flow{Match: "icmp6,in_port=1,dl_vlan=7,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,icmp_type=136", Actions: "output:3,LOCAL"})
	if !ok || len(b)%8 != 0 {
		t.Errorf("encoded %v, %d bytes", ok, len(b))
	}
}

// A switch that hangs, hangs up, or talks nonsense gives an error in bounded time.
func TestHostileSwitch(t *testing.T) {
	for name, reply := range map[string][]byte{
		"silent":          nil,
		"hangs up":        {},
		"short header":    {1, 0, 0, 4, 0, 0, 0, 1},
		"error for hello": {1, 1, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0},
		"hello, then cut": {1, 0, 0, 8, 0, 0, 0, 1, 1, 17, 0, 40, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			release := make(chan struct{})
			defer close(release)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if reply == nil {
					<-release
				}
				_, _ = c.Write(reply)
			}()
			d := New(Options{Bridge: "br0", Socket: socket})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := d.ports(ctx); !errors.Is(err, ErrUnreachable) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A repair over a connection the switch has dropped meanwhile dials again, once.
func TestRepairRedials(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mods := make(chan int, 3)
	go func() {
		for range 2 { // each connection serves one barrier, then hangs up
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c, n := &conn{Conn: nc, version: of13}, 0
			_ = c.send(msgHello, nil)
			for done := false; !done; {
				m, err := c.receive()
				if err != nil {
					break
				}
				switch m.typ {
				case msgFlowMod:
					n++
				case msg13Barrier:
					done = c.send(msg13BarrierReply, nil) == nil
				}
			}
			nc.Close()
			mods <- n
		}
	}()
	d := New(Options{Bridge: "br0", Socket: socket})
	d.placed = flows.Set{
		{Priority: flows.PrioritySteer, Match: "arp,in_port=1", Actions: "NORMAL"},
		{Priority: 9, Match: "in_port=1", Actions: "drop"},
	}
	r := &repairer{d: d}
	defer r.close()
	r.warm(t.Context())
	if n := <-mods; n != 0 {
		t.Fatalf("%d flows sent before they were lost", n)
	}
	if n, err := r.repair(t.Context()); n != 1 || err != nil {
		t.Errorf("repaired %d, %v", n, err)
	}
	if n := <-mods; n != 1 {
		t.Errorf("the switch got %d flows, want the steering flow", n)
	}
}
