package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"picot.dev/picot/fastpath"
)

// frames are some of different lengths.
func frames() [][]byte {
	var all [][]byte
	for i, n := range []int{60, 61, 1514, 9014} {
		all = append(all, bytes.Repeat([]byte{byte(i + 1)}, n))
	}
	return all
}

func info(b []byte, length int) gopacket.CaptureInfo {
	return gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(b), Length: length}
}

func pcapFile(t testing.TB, kind layers.LinkType, all ...[]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	must(t, w.WriteFileHeader(1<<16, kind))
	for _, b := range all {
		must(t, w.WritePacket(info(b, len(b)), b))
	}
	return file.Bytes()
}

func pcapngFile(t testing.TB, kind layers.LinkType, all ...[]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := pcapgo.NewNgWriter(&file, kind)
	must(t, err)
	for _, b := range all {
		must(t, w.WritePacket(info(b, len(b)), b))
	}
	must(t, w.Flush())
	return file.Bytes()
}

// bigEndian turns the words of a pcap file of frames around.
func bigEndian(b []byte) []byte {
	b = bytes.Clone(b)
	turn := func(at, n int) {
		for i := range n / 2 {
			b[at+i], b[at+n-1-i] = b[at+n-1-i], b[at+i]
		}
	}
	for _, f := range [][2]int{{0, 4}, {4, 2}, {6, 2}, {8, 4}, {12, 4}, {16, 4}, {20, 4}} {
		turn(f[0], f[1])
	}
	for at := 24; at < len(b); {
		n := int(binary.LittleEndian.Uint32(b[at+8:]))
		for i := range 4 {
			turn(at+4*i, 4)
		}
		at += 16 + n
	}
	return b
}

// block is a pcapng block of the given byte order.
func block(o binary.AppendByteOrder, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	b := o.AppendUint32(o.AppendUint32(nil, kind), uint32(len(body)+12))
	return o.AppendUint32(append(b, body...), uint32(len(body)+12))
}

// oldBlocks is a pcapng file of simple and obsolete packet blocks.
func oldBlocks(o binary.AppendByteOrder, all ...[]byte) []byte {
	section := append(o.AppendUint32(nil, ngOrder), 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255)
	file := block(o, ngSection, section)
	file = append(file, block(o, ngInterface, o.AppendUint32(append(o.AppendUint16(nil, linkEthernet), 0, 0), 0))...)
	for i, b := range all {
		n := uint32(len(b))
		if i%2 == 0 {
			file = append(file, block(o, ngSimple, append(o.AppendUint32(nil, n), b...))...)
			continue
		}
		head := append(o.AppendUint16(nil, 0), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		file = append(file, block(o, ngPacketOld, append(o.AppendUint32(o.AppendUint32(head, n), n), b...))...)
	}
	return file
}

func captures(t testing.TB) map[string][]byte {
	all := frames()
	little := pcapFile(t, layers.LinkTypeEthernet, all...)
	ng := pcapngFile(t, layers.LinkTypeEthernet, all...)
	return map[string][]byte{
		"pcap": little, "pcap, big-endian": bigEndian(little), "pcapng": ng,
		"pcapng, old blocks":    oldBlocks(binary.LittleEndian, all...),
		"pcapng, big-endian":    oldBlocks(binary.BigEndian, all...),
		"pcapng, two sections":  append(oldBlocks(binary.BigEndian, all[:2]...), pcapngFile(t, layers.LinkTypeEthernet, all[2:]...)...),
		"pcapng, unknown block": append(append(bytes.Clone(ng[:0]), ng...), block(binary.LittleEndian, 0x0bad, []byte("what"))...),
	}
}

func TestReadCapture(t *testing.T) {
	for name, file := range captures(t) {
		for i, want := range frames() {
			got, err := ReadCapture(bytes.NewReader(file), i+1)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: frame %d: %d bytes, %v", name, i+1, len(got), err)
			}
		}
		_, err := ReadCapture(bytes.NewReader(file), 5)
		if !errors.Is(err, ErrCapture) || !strings.Contains(err.Error(), "no frame 5: it ends after 4") {
			t.Errorf("%s: frame 5: %v", name, err)
		}
	}
}

func TestReadCaptureSaysWhatIsWrong(t *testing.T) {
	one := frames()[0]
	var cut bytes.Buffer
	w := pcapgo.NewWriter(&cut)
	must(t, w.WriteFileHeader(60, layers.LinkTypeEthernet))
	must(t, w.WritePacket(info(one, 1514), one))
	long := make([]byte, fastpath.TraceMax+1)
	file := pcapFile(t, layers.LinkTypeEthernet, one)
	ng := pcapngFile(t, layers.LinkTypeEthernet, one)
	damaged := bytes.Clone(file)
	binary.LittleEndian.PutUint32(damaged[24+8:], 1<<30)
	for _, c := range []struct {
		name string
		file []byte
		n    int
		say  string
	}{
		{"empty", nil, 1, "shorter than any capture"},
		{"text", []byte("hello, world"), 1, "neither pcap nor pcapng"},
		{"number 0", file, 0, "the first is 1"},
		{"cooked", pcapFile(t, layers.LinkTypeLinuxSLL, one), 1, "link type 113, not Ethernet"},
		{"cooked, pcapng", pcapngFile(t, layers.LinkTypeLinuxSLL, one), 1, "link type 113, not Ethernet"},
		{"snapped", cut.Bytes(), 1, "only 60 of 1514 bytes"},
		{"too long", pcapFile(t, layers.LinkTypeEthernet, long), 1, "at most"},
		{"cut off", file[:len(file)-1], 1, "cut off"},
		{"cut off, pcapng", ng[:len(ng)-1], 1, "cut off"},
		{"damaged", damaged, 1, "damaged"},
	} {
		_, err := ReadCapture(bytes.NewReader(c.file), c.n)
		if !errors.Is(err, ErrCapture) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want %q", c.name, err, c.say)
		}
	}
}

// FuzzReadCapture holds that a reader nobody here wrote, where it finds the frame,
// finds the same.
func FuzzReadCapture(f *testing.F) {
	for _, file := range captures(f) {
		f.Add(file[:min(len(file), 512)], 1)
		f.Add(file, 3)
	}
	f.Fuzz(func(t *testing.T, file []byte, n int) {
		if n = n % 8; n < 0 {
			n = -n
		}
		got, err := ReadCapture(bytes.NewReader(file), n)
		if err != nil {
			if !errors.Is(err, ErrCapture) {
				t.Errorf("%v", err)
			}
			return
		}
		r, err := pcapgo.NewReader(bytes.NewReader(file))
		if err != nil {
			return // pcapng, or what that reader does not take
		}
		for i := range n {
			b, _, err := r.ReadPacketData()
			if err != nil {
				return
			}
			if i == n-1 && !bytes.Equal(b, got) {
				t.Errorf("frame %d: %x, gopacket has %x", n, got, b)
			}
		}
	})
}

// FuzzParseHex holds that what is read prints as what was given.
func FuzzParseHex(f *testing.F) {
	for _, s := range []string{"", "02", "02:00 0a\n", "xx", "0", "Ff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseHex(s)
		if err == nil && (len(b) == 0 || len(b) > fastpath.TraceMax) {
			t.Errorf("%d bytes", len(b))
		}
	})
}

// FuzzTrace has any bytes traced from a port and from an uplink, and any fields.
func FuzzTrace(f *testing.F) {
	n := testNode(f)
	for _, c := range cases() {
		got, err := Run(n, c.request)
		must(f, err)
		b, err := ParseHex(got.Frame.Hex)
		must(f, err)
		f.Add(b, c.request.Query())
		if got.Out != nil {
			b, err = ParseHex(got.Out.Frame.Hex)
			must(f, err)
			f.Add(b, "")
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, query string) {
		Describe(frame)
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if r, err := ParseQuery(v); err == nil {
			if _, err := Run(n, r); err != nil && !errors.Is(err, ErrRequest) {
				t.Errorf("%+v: %v", r, err)
			}
			r.Frame = hex.EncodeToString(frame)
			for _, in := range []string{"va", "vc", "up0"} {
				r := Request{In: in, Frame: r.Frame}
				if _, err := Run(n, r); err != nil && !errors.Is(err, ErrRequest) {
					t.Errorf("%+v: %v", r, err)
				}
			}
		}
	})
}

func TestQueryCarriesTheRequest(t *testing.T) {
	for _, c := range cases() {
		v, err := url.ParseQuery(c.request.Query())
		must(t, err)
		if got, err := ParseQuery(v); err != nil || got != c.request {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.request)
		}
	}
	for _, bad := range []string{"in=va&nonsense=1", "in=va&in=vb"} {
		v, err := url.ParseQuery(bad)
		must(t, err)
		if _, err := ParseQuery(v); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
