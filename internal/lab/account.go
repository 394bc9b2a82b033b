package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"picot.dev/picot/internal/status"
)

// Sample is what a node's agent and the kernel's devices have counted so far.
// The zero value stands for "everything is fresh".
type Sample struct {
	Status  status.Status
	Devices map[string]Device
}

// Device is the kernel's own counters of a device with an XDP program.
type Device struct {
	Index     int
	TXPackets uint64 // ip -s link
	// Of veth (ethtool -S, all queues): frames the NAPI poll took up, those it
	// handed to a socket, and those it lost, be it before the program or because
	// the socket refused them (drivers/net/veth.c, veth_xdp_rcv).
	XDPPackets, XDPRedirect, RXDrops uint64
	Veth                             bool
}

// Sample asks the agent and then the kernel.
func (n *Node) Sample(ctx context.Context) (Sample, error) {
	s, err := n.Status(ctx)
	if err != nil {
		return Sample{}, err
	}
	var names []string
	for _, r := range rows(s) {
		names = append(names, r.device)
	}
	devices, err := n.Devices(ctx, names...)
	return Sample{Status: s, Devices: devices}, err
}

// Devices reads the kernel's counters of those of the devices that are there;
// it needs no agent.
func (n *Node) Devices(ctx context.Context, names ...string) (map[string]Device, error) {
	links, err := n.Command(ctx, "ip", "-s", "-j", "link").Output()
	if err != nil {
		return nil, fmt.Errorf("node %s: ip link: %w", n.Name, err)
	}
	var parsed []struct {
		Index int    `json:"ifindex"`
		Name  string `json:"ifname"`
		Stats struct {
			TX struct{ Packets uint64 } `json:"tx"`
		} `json:"stats64"`
	}
	if err := json.Unmarshal(links, &parsed); err != nil {
		return nil, fmt.Errorf("node %s: ip link: %w", n.Name, err)
	}
	all := map[string]Device{}
	for _, l := range parsed {
		if !slices.Contains(names, l.Name) {
			continue
		}
		d := Device{Index: l.Index, TXPackets: l.Stats.TX.Packets}
		out, err := n.Command(ctx, "ethtool", "-S", l.Name).Output()
		if err != nil {
			return nil, fmt.Errorf("node %s: ethtool -S %s: %w", n.Name, l.Name, err)
		}
		d.ethtool(string(out))
		all[l.Name] = d
	}
	return all, nil
}

func (d *Device) ethtool(out string) {
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		name, value, ok := strings.Cut(strings.TrimSpace(s.Text()), ": ")
		n, err := strconv.ParseUint(value, 10, 64)
		if !ok || err != nil || !strings.HasPrefix(name, "rx_queue_") {
			continue
		}
		switch {
		case strings.HasSuffix(name, "_xdp_packets"):
			d.XDPPackets += n
			d.Veth = true
		case strings.HasSuffix(name, "_xdp_redirect"):
			d.XDPRedirect += n
		case strings.HasSuffix(name, "_drops") && !strings.HasSuffix(name, "_xdp_drops"):
			d.RXDrops += n
		}
	}
}

// row is a port's or an uplink's counters.
type row struct {
	device string
	uplink bool
	port   int
	status.Traffic
}

func rows(s status.Status) []row {
	var all []row
	for _, p := range s.Ports {
		if p.XDP != nil { // attached
			all = append(all, row{device: p.Device, port: p.Port, Traffic: p.Traffic})
		}
	}
	for _, u := range s.Uplinks {
		if u.XDP != nil {
			all = append(all, row{device: u.Device, uplink: true, Traffic: u.Traffic})
		}
	}
	return all
}

// Account checks that every frame counted between two samples of a quiet node
// is somewhere, for each port and uplink:
//
//	device: frames polled      = XDP program: redirected + dropped + passed + errors (+ lost before it)
//	device: frames redirected  = agent: received
//	XDP program: redirected    = agent: received + socket: dropped + ring full
//	agent: received            = local + remote + answered + dropped; dropped = sum of the reasons
//	agent: sent - busy         = device: sent                    (workload ports: nobody else sends there)
//
// and that the agent's frames are as many as before and none is under way. A
// port or device that is new since before counts from zero. Between the samples
// the agent must not have been started anew, nor a port attached anew on the same
// device: take another first sample then. The error names every breach.
func Account(before, after Sample) error {
	var errs []error
	old := map[string]row{}
	for _, r := range rows(before.Status) {
		old[r.device] = r
	}
	for _, now := range rows(after.Status) {
		was, device := old[now.device], before.Devices[now.device]
		if was.port != now.port || device.Index != after.Devices[now.device].Index {
			was, device = row{}, Device{}
		}
		if was.XDP == nil {
			was.XDP = &status.XDP{}
		}
		for _, e := range breaches(was, now, device, after.Devices[now.device]) {
			errs = append(errs, fmt.Errorf("%s %s: %w", after.Status.Node, now.device, e))
		}
	}
	f := after.Status.Frames
	if f.Batch+f.TX+f.Handoff != 0 {
		errs = append(errs, fmt.Errorf("%s: frames under way: %d in a batch, %d in tx, %d handed over", after.Status.Node, f.Batch, f.TX, f.Handoff))
	}
	if t := before.Status.Frames.Total; t != 0 && t != f.Total {
		errs = append(errs, fmt.Errorf("%s: %d frames, there were %d", after.Status.Node, f.Total, t))
	}
	return errors.Join(errs...)
}

func breaches(was, now row, wasDevice, device Device) []error {
	var errs []error
	equal := func(left uint64, leftName string, right uint64, rightName string) {
		if left != right {
			errs = append(errs, fmt.Errorf("%s is %d, %s is %d", leftName, left, rightName, right))
		}
	}
	equal(now.RX, "received", now.Local+now.Remote+now.Answered+now.Dropped, "local + remote + answered + dropped")
	var reasons uint64
	for _, n := range now.Drops {
		reasons += n
	}
	equal(now.Dropped, "dropped", reasons, "the sum of the reasons")
	equal(now.Bogus+now.Socket.TXInvalid+now.Socket.RXInvalid, "bogus or invalid descriptors", 0, "allowed")

	rx := now.RX - was.RX
	redirected := now.XDP.Redirected - was.XDP.Redirected
	refused := now.Socket.RXDropped + now.Socket.RingFull - was.Socket.RXDropped - was.Socket.RingFull
	equal(redirected, "redirected by XDP", rx+refused, "received + refused by the socket")
	if device.Veth {
		handed := device.XDPRedirect - wasDevice.XDPRedirect
		equal(handed, "redirected by the device", rx, "received")
		program := redirected + now.XDP.DroppedEmpty + now.XDP.Passed + now.XDP.Errors -
			was.XDP.DroppedEmpty - was.XDP.Passed - was.XDP.Errors
		lost := device.RXDrops - wasDevice.RXDrops - refused
		equal(device.XDPPackets-wasDevice.XDPPackets, "polled by the device", program+lost, "what XDP counted + lost before it")
	}
	if !now.uplink {
		equal(device.TXPackets-wasDevice.TXPackets, "sent by the device", now.TX-now.TXBusy-was.TX+was.TXBusy, "sent - busy")
	}
	return errs
}

const accountWithin = 5 * time.Second

// Account samples until [Account] holds (frames still under way count as a
// breach, and pods speak on their own), for 5 seconds at most, and returns the
// last sample.
func (n *Node) Account(ctx context.Context, before Sample) (Sample, error) {
	deadline := time.Now().Add(accountWithin)
	for {
		after, err := n.Sample(ctx)
		if err == nil {
			err = Account(before, after)
		}
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return after, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
