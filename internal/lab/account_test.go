package lab

import (
	"context"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/status"
)

func fresh() Sample {
	return Sample{
		Status: status.Status{
			Node: "node1", Frames: status.Frames{Total: 10, Free: 6, Fill: 4},
			Ports: []status.Port{{Port: 1, Device: "v", Traffic: status.Traffic{
				RX: 10, TX: 5, TXBusy: 1, Local: 2, Remote: 3, Answered: 1, Dropped: 4,
				Drops:  map[string]uint64{"a": 1, "b": 3},
				XDP:    &status.XDP{Redirected: 13, DroppedEmpty: 2},
				Socket: status.SocketStats{RXDropped: 1, RingFull: 2},
			}}},
		},
		Devices: map[string]Device{"v": {Index: 3, Veth: true, TXPackets: 4, XDPPackets: 16, XDPRedirect: 10, RXDrops: 4}},
	}
}

func TestAccountSeesEachBreach(t *testing.T) {
	if err := Account(Sample{}, fresh()); err != nil {
		t.Fatalf("the sound sample: %v", err)
	}
	if err := Account(fresh(), fresh()); err != nil {
		t.Fatalf("nothing happened: %v", err)
	}
	for want, change := range map[string]func(s *Sample, p *status.Port){
		"local + remote":         func(s *Sample, p *status.Port) { p.Local++ },
		"sum of the reasons":     func(s *Sample, p *status.Port) { p.Drops["a"]++ },
		"bogus":                  func(s *Sample, p *status.Port) { p.Bogus++ },
		"redirected by XDP":      func(s *Sample, p *status.Port) { p.Socket.RingFull++ },
		"redirected by the":      func(s *Sample, p *status.Port) { set(s, func(d *Device) { d.XDPRedirect-- }) },
		"polled by the device":   func(s *Sample, p *status.Port) { p.XDP.DroppedEmpty++ },
		"sent by the device":     func(s *Sample, p *status.Port) { p.TXBusy++ },
		"frames under way":       func(s *Sample, p *status.Port) { s.Status.Frames.Batch++ },
		"11 frames, there were ": func(s *Sample, p *status.Port) { s.Status.Frames.Total++ },
	} {
		s := fresh()
		change(&s, &s.Status.Ports[0])
		if err := Account(fresh(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// Another device of that name counts from zero.
	s := fresh()
	set(&s, func(d *Device) { d.Index++ })
	if err := Account(fresh(), s); err != nil {
		t.Errorf("new device: %v", err)
	}
}

func set(s *Sample, f func(*Device)) {
	d := s.Devices["v"]
	f(&d)
	s.Devices["v"] = d
}

func TestAccountOfRealTraffic(t *testing.T) {
	l := newLab(t, Options{Picot: build(t)})
	nodes, pods := twoNodes(t, l, NodeOptions{Queues: 2})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range nodes {
		must(t, n.Start(ctx))
	}
	var before [2]Sample
	for i, n := range nodes {
		must(t, n.WaitReady(ctx, 1))
		var err error
		before[i], err = n.Account(ctx, Sample{})
		must(t, err)
	}
	_, err := pods[0].Run(ctx, "ping", "-q", "-f", "-c1000", pods[1].IP4().String())
	must(t, err)
	for i, n := range nodes {
		after, err := n.Account(ctx, before[i])
		must(t, err)
		if got := after.Status.Ports[0].RX - before[i].Status.Ports[0].RX; got < 1000 {
			t.Errorf("%s: %d frames received for 1000 pings", n.Name, got)
		}
	}
	// The sweep leaves the living alone; a pod's end takes its namespace along.
	must(t, Sweep(ctx, false))
	must(t, nodes[0].WaitReady(ctx, 1))
	must(t, l.DeletePod(ctx, pods[0]))
	_, err = nodes[0].WaitStatus(ctx, func(s status.Status) error {
		if len(s.Ports) == 0 {
			return nil
		}
		return context.DeadlineExceeded
	})
	must(t, err)
}
