package capture

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Names tell what numbers mean.
type Names interface {
	Snapshot() *table.Snapshot       // the newest
	Endpoint(id table.PortID) string // "" if not known (yet)
	Uplink(number int) string        // device
}

// Writer writes captured frames as pcapng: an interface for each device, named
// after it, and a comment for each frame.
type Writer struct {
	ng        *pcapgo.NgWriter
	names     Names
	addresses addresses
	most      uint64
	snaplen   int
	devices   map[fastpath.Device]*device
	order     []*device // by interface
	frames    uint64
}

// device is one as the file has it.
type device struct {
	of             fastpath.Device
	name, endpoint string
	number         int // of its interface; -1: none yet
	frames         uint64
}

// NewWriter begins a file for the request, one that Check accepts. first is the
// device of the first interface: a file has at least one.
func NewWriter(out io.Writer, r Request, names Names, node string, first fastpath.Device) (*Writer, error) {
	a, err := r.addresses()
	if err != nil {
		return nil, err
	}
	w := &Writer{names: names, addresses: a, most: r.Count, snaplen: r.Snaplen, devices: map[fastpath.Device]*device{}}
	section := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
		OS: "Linux", Application: "picot pcap", Comment: "frames as they came to node " + node + ", with what became of them",
	}}
	d := w.device(first)
	if w.ng, err = pcapgo.NewNgWriterInterface(out, w.describe(d), section); err != nil {
		return nil, err
	}
	w.devices[first], w.order = d, []*device{d}
	return w, w.ng.Flush()
}

// describe is d as an interface; it gets the next number.
func (w *Writer) describe(d *device) pcapgo.NgInterface {
	d.number = len(w.order)
	i := pcapgo.NgInterface{Name: d.name, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(w.snaplen), TimestampResolution: 9}
	if d.endpoint != "" {
		i.Description = "endpoint " + d.endpoint
	}
	return i
}

// device finds what a device is called. What is known stays: a port's ID names
// nothing else later. What is not known yet is asked for again.
func (w *Writer) device(of fastpath.Device) *device {
	if d := w.devices[of]; d != nil {
		if d.endpoint == "" && of.Port != 0 {
			d.endpoint = w.names.Endpoint(of.Port)
		}
		return d
	}
	d := &device{of: of, number: -1}
	if n, ok := of.Uplink(); ok {
		d.name = w.names.Uplink(n)
		w.devices[of] = d
		return d
	}
	s, i := w.names.Snapshot(), of.Port.Index()
	if i < len(s.Ports) && s.Ports[i].ID == of.Port && s.Ports[i].Name != "" {
		d.name, d.endpoint = s.Ports[i].Name, w.names.Endpoint(of.Port)
		w.devices[of] = d
		return d
	}
	d.name = fmt.Sprintf("#%d", i)
	return d
}

// Full says that the request's count is reached.
func (w *Writer) Full() bool { return w.most != 0 && w.frames >= w.most }

// Frames is how many frames the file has.
func (w *Writer) Frames() uint64 { return w.frames }

// wants says that a frame is from or to the request's addresses, if it has any. Of a
// frame that was opened the inner one counts; none behind an SRH so long that its
// addresses were not kept is wanted.
func (w *Writer) wants(c *fastpath.Captured) bool {
	return w.addresses == addresses{} || c.Inner <= len(c.Data) && w.addresses.match(c.Data[c.Inner:])
}

// Write adds a frame, unless the request does not want it.
func (w *Writer) Write(c *fastpath.Captured) error {
	if w.Full() || !w.wants(c) {
		return nil
	}
	from := w.device(c.From)
	if from.number < 0 {
		if _, err := w.ng.AddInterface(w.describe(from)); err != nil {
			return err
		}
		w.devices[c.From], w.order = from, append(w.order, from)
	}
	from.frames++
	w.frames++
	return w.ng.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp: time.Unix(0, c.Time), CaptureLength: len(c.Data), Length: c.Len, InterfaceIndex: from.number,
	}, c.Data, pcapgo.NgPacketOptions{Comments: []string{w.comment(c, from)}})
}

// comment is what became of a frame, in words of the form key=value.
func (w *Writer) comment(c *fastpath.Captured, from *device) string {
	var b strings.Builder
	say := func(key, value string) {
		if value != "" {
			b.WriteByte(' ')
			b.WriteString(key)
			b.WriteByte('=')
			b.WriteString(value)
		}
	}
	b.WriteString("verdict=" + c.Verdict.String())
	if c.Verdict == fastpath.Dropped {
		say("reason", c.Reason.String())
	}
	say("port", from.name)
	say("endpoint", from.endpoint)
	say("network", w.network(c.Network))
	if c.To != (fastpath.Device{}) {
		to := w.device(c.To)
		say("to", to.name)
		say("to-endpoint", to.endpoint)
	}
	if c.SID != (packet.IP{}) {
		say("node", w.node(c.SID))
		say("sid", c.SID.String())
	}
	if c.Reply {
		say("icmp-error", "sent")
	}
	return b.String()
}

func (w *Writer) network(id table.NetworkID) string {
	if id == 0 {
		return ""
	}
	s := w.names.Snapshot()
	if n, ok := s.NetworkByID(id); ok {
		return s.Networks[n].Name
	}
	return fmt.Sprint(uint32(id))
}

func (w *Writer) node(sid packet.IP) string {
	s := w.names.Snapshot()
	if n, ok := s.NodeBySource(sid.Hi); ok {
		return s.Nodes[n].Name
	}
	return ""
}

// Flush passes on what is written so far.
func (w *Writer) Flush() error { return w.ng.Flush() }

// Close ends the file with the statistics of each interface: how many frames it
// has, and how many of its were missed. It does not close what is below. missed
// tells of the ports that missed some; uplink or port, by number.
func (w *Writer) Close(missed func(func(uplink bool, index int, frames uint64))) error {
	lost := map[*device]uint64{}
	missed(func(uplink bool, index int, frames uint64) {
		for _, d := range w.order {
			n, is := d.of.Uplink()
			if is == uplink && (uplink && n == index || !uplink && d.of.Port.Index() == index) {
				lost[d] = frames // of two that had the index, the later
			}
		}
	})
	now := time.Now()
	for _, d := range w.order {
		err := w.ng.WriteInterfaceStats(d.number, pcapgo.NgInterfaceStatistics{
			LastUpdate: now, PacketsReceived: d.frames + lost[d], PacketsDropped: lost[d],
		})
		if err != nil {
			return err
		}
	}
	return w.ng.Flush()
}
