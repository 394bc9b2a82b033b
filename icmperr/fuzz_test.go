package icmperr

import (
	"bytes"
	"testing"

	"picot.dev/picot/internal/packet"
)

// FuzzWrite writes every error over an arbitrary frame. gopacket judges each;
// none may depend on what lay behind the frame, and none may itself be answered
// with an error.
func FuzzWrite(f *testing.F) {
	tagged := udp6(1400)
	tagged.tags = []uint16{100, 7}
	options := udp4(600)
	options.options = 40
	for _, o := range []offence{udp4(0), udp4(1400), udp6(0), udp6(1400), tagged, options} {
		f.Add(o.frame(f))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var l packet.Layout
		if len(frame) > 3800 || !packet.Parse(frame, &l) {
			return
		}
		src, kinds := from4, kinds4(from4)
		if l.IsIPv6() {
			src, kinds = from6, kinds6(from6)
		}
		allowed := Allowed(frame, &l)
		for name, k := range kinds {
			got := written(t, frame, 0x00, k.write)
			if (len(got) > 0) != allowed {
				t.Fatalf("%s: %d bytes, Allowed is %v", name, len(got), allowed)
			}
			if !allowed {
				continue
			}
			if again := written(t, frame, 0xff, k.write); !bytes.Equal(got, again) {
				t.Fatalf("%s depends on what lay behind the frame", name)
			}
			judge(t, frame, got, src, k)
			if el := layout(t, got); Allowed(got, &el) {
				t.Fatalf("%s may be answered with an error", name)
			}
		}
	})
}

// FuzzParsePTB: offsets stay inside the frame whatever the quote says.
func FuzzParsePTB(f *testing.F) {
	inner := udp4(1400).frame(f)
	f.Add(uint32(1400), outer(inner)[:1232])
	f.Add(uint32(1400), outer(inner, sid, via)[:1232])
	f.Add(uint32(1280), outer(inner)[:40])
	f.Fuzz(func(t *testing.T, mtu uint32, quote []byte) {
		if len(quote) > 2000 {
			return
		}
		frame := ptb(t, 2, mtu, quote)
		l := layout(t, frame)
		p, ok := ParsePTB(frame, &l)
		if !ok {
			return
		}
		if p.MTU != mtu || mtu < 1280 || p.Inner < 62+40 || p.Inner > p.End || p.End > len(frame) || p.FlowLabel > 0xfffff {
			t.Fatalf("%+v of %d bytes", p, len(frame))
		}
		if !bytes.Equal(wire6(p.Src), quote[8:24]) || !bytes.Equal(wire6(p.Dst), quote[24:40]) {
			t.Fatalf("%+v", p)
		}
		packet.ParseQuote(frame[p.Inner:p.End], new(packet.Layout))
	})
}
