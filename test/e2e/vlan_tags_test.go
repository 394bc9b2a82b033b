package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/packet"
)

// vlanTag is a TPID and a TCI.
type vlanTag struct{ tpid, tci uint16 }

const (
	cTag = 0x8100
	sTag = 0x88a8
)

// withTags puts tags, the outer one first, into an untagged frame.
func withTags(frame []byte, tags ...vlanTag) []byte {
	out := append([]byte{}, frame[:12]...)
	for _, t := range tags {
		out = binary.BigEndian.AppendUint16(out, t.tpid)
		out = binary.BigEndian.AppendUint16(out, t.tci)
	}
	return append(out, frame[12:]...)
}

// vlanCases are tags with priority, drop eligibility, the ends of the range, and
// QinQ in both layouts that are in use.
var vlanCases = [][]vlanTag{
	{{cTag, 0x6064}},
	{{cTag, 0xffff}},
	{{sTag, 7}},
	{{sTag, 100}, {cTag, 200}},
	{{cTag, 0xb00a}, {cTag, 11}},
}

// probes are an IPv4 and an IPv6 UDP frame, each with a payload of its own.
func probes(t *testing.T, from, to *lab.Pod, number int) [][]byte {
	t.Helper()
	var all [][]byte
	for _, v6 := range []bool{false, true} {
		udp := []byte{0x30, 0x39, 0x30, 0x39, 0, 24, 0, 0} // IPv4 may go without a checksum
		udp = fmt.Appendf(udp, "vlan probe %4d ", number)
		if v6 {
			pseudo := packet.PseudoHeader6(packet.IPFromAddr(from.IP6()), packet.IPFromAddr(to.IP6()), 17, len(udp))
			binary.BigEndian.PutUint16(udp[6:], ^packet.Fold(packet.Add(pseudo, packet.Sum(udp))))
		}
		all = append(all, ipFrame(t, from, to, v6, 17, 0, udp))
	}
	return all
}

// arrived are the frames with a probe in them that a capture saw come in.
func arrived(k *capture) []captured {
	return k.all(func(f captured) bool { return !f.outgoing && bytes.Contains(f.data, []byte("vlan probe")) })
}

// whole says how the frames differ from what is to arrive; nil: not at all.
func whole(k *capture, want [][]byte) error {
	got := arrived(k)
	if len(got) != len(want) {
		return fmt.Errorf("%d of %d frames", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i].data, want[i]) {
			return fmt.Errorf("frame %d: got\n% x\nwant\n% x", i, got[i].data, want[i])
		}
	}
	return nil
}

// A tag in the frame itself arrives as it was sent.
func TestVLANInlineTagsSurvive(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	for _, to := range []*lab.Pod{pods[1], pods[2]} {
		seen := startCapture(t, to.Netns(), lab.PodDevice)
		var frames [][]byte
		for i, tags := range vlanCases {
			for _, f := range probes(t, pods[0], to, i) {
				frames = append(frames, withTags(f, tags...))
			}
		}
		sendRaw(t, pods[0].Netns(), lab.PodDevice, frames...)
		eventually(t, 10*time.Second, "tags at "+to.Name, func() error { return whole(seen, frames) })
	}
	c.account()
}

// pushTags tags what leaves a pod, as tc would: the last tag stays beside the
// frame, where the device is to put it in. The returned function ends that.
func pushTags(t *testing.T, p *lab.Pod, tags []vlanTag) (remove func()) {
	t.Helper()
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for i := range tags {
		tag := tags[len(tags)-1-i] // the inner one first
		code = append(code,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(tag.tpid>>8|tag.tpid<<8)),
			asm.Mov.Imm(asm.R3, int32(tag.tci)),
			asm.FnSkbVlanPush.Call())
	}
	code = append(code, asm.Mov.Imm(asm.R0, 0), asm.Return()) // TCX_PASS
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXEgress, Instructions: code, License: "GPL"})
	must(t, err)
	defer prog.Close()
	var l link.Link
	must(t, p.Do(func() error {
		device, err := net.InterfaceByName(lab.PodDevice)
		if err != nil {
			return err
		}
		l, err = link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: prog, Attach: ebpf.AttachTCXEgress})
		return err
	}))
	return func() { must(t, l.Close()) }
}

// sendOffloaded sends probes whose tags a tc program pushes, and returns them as
// they are to arrive.
func sendOffloaded(t *testing.T, from, to *lab.Pod) [][]byte {
	t.Helper()
	var want [][]byte
	for i, tags := range vlanCases {
		remove := pushTags(t, from, tags)
		for _, f := range probes(t, from, to, i) {
			sendRaw(t, from.Netns(), lab.PodDevice, f)
			want = append(want, withTags(f, tags...))
		}
		remove()
	}
	return want
}

// A tag that travels beside the frame is put back into it, and arrives.
func TestVLANOffloadedTagsSurvive(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	for _, to := range []*lab.Pod{pods[1], pods[2]} {
		seen := startCapture(t, to.Netns(), lab.PodDevice)
		want := sendOffloaded(t, pods[0], to)
		eventually(t, 10*time.Second, "tags at "+to.Name, func() error { return whole(seen, want) })
	}
	if got := portOf(t, c.status(pods[0].Node), pods[0].Device).XDP.Tags; got < uint64(4*len(vlanCases)) {
		t.Errorf("%d tags put back, want %d at least", got, 4*len(vlanCases))
	}
	c.account()
}

// The control of the test before: under a program that only redirects, the same
// frames enter the untagged network, and the same judgement says so.
func TestControlVLANWithoutReinsertionLeaks(t *testing.T) {
	c := fourPods(t)
	from, to := c.Pods()[0], c.Pods()[2]
	c.replaceByBareRedirect(from)
	seen := startCapture(t, to.Netns(), lab.PodDevice)
	want := sendOffloaded(t, from, to)
	eventually(t, 10*time.Second, "the frames without a tag", func() error {
		if n := len(arrived(seen)); n != len(want) {
			return fmt.Errorf("%d of %d", n, len(want))
		}
		return nil
	})
	if whole(seen, want) == nil {
		t.Error("the frames came tagged: nothing would notice a missing re-insertion")
	}
	for i, f := range arrived(seen) {
		if outer := want[i][12:16]; bytes.Equal(f.data[12:16], outer) {
			t.Errorf("frame %d came with its outer tag: % x", i, f.data[:22])
		}
	}
}

// replaceByBareRedirect puts a program on a pod's port that knows no tags.
func (c *cluster) replaceByBareRedirect(p *lab.Pod) {
	c.t.Helper()
	dir := filepath.Join(c.BPFFS(), p.Node.Name, p.Device)
	xsks, err := ebpf.LoadPinnedMap(filepath.Join(dir, "xsks"), nil)
	c.must(err)
	defer xsks.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Flags: 1 << 5 /* BPF_F_XDP_HAS_FRAGS */, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), // rx_queue_index
			asm.LoadMapPtr(asm.R1, xsks.FD()),
			asm.Mov.Imm(asm.R3, 1), // XDP_DROP
			asm.FnRedirectMap.Call(),
			asm.Return(),
		}})
	c.must(err)
	defer prog.Close()
	l, err := link.LoadPinnedLink(filepath.Join(dir, "link"), nil)
	c.must(err)
	defer l.Close()
	c.must(l.Update(prog))
}
