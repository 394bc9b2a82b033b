package packet

import "encoding/binary"

// Tags are the VLAN tags of a frame (IEEE 802.1Q clause 9), outermost first,
// without priority: up to two identifiers, and of each whether it is a service
// tag. The zero value is none. Comparable.
type Tags uint32 // of each 16 bits: there 1<<15, service 1<<14, identifier; the inner one above

const (
	tagThere   = 1 << 15
	tagService = 1 << 14
	tagVID     = 1<<12 - 1
)

// TagsOf returns the tags Parse looked through.
func TagsOf(frame []byte, l *Layout) (t Tags) {
	for i := range min(int(l.Tags), 2) {
		at := EthernetLen - 2 + i*VLANLen
		if len(frame) < at+VLANLen {
			break
		}
		one := Tags(tagThere | binary.BigEndian.Uint16(frame[at+2:])&tagVID)
		if binary.BigEndian.Uint16(frame[at:]) == EtherTypeQinQ {
			one |= tagService
		}
		t |= one << (16 * i)
	}
	return t
}

// Len is how many bytes the tags take.
func (t Tags) Len() (n int) {
	for ; t != 0; t >>= 16 {
		n += VLANLen
	}
	return n
}

// Put writes the tags to b, which holds Len bytes: what stands between source MAC
// and EtherType.
func (t Tags) Put(b []byte) {
	for ; t != 0; t >>= 16 {
		typ := uint16(EtherTypeVLAN)
		if t&tagService != 0 {
			typ = EtherTypeQinQ
		}
		binary.BigEndian.PutUint16(b, typ)
		binary.BigEndian.PutUint16(b[2:], uint16(t&tagVID))
		b = b[VLANLen:]
	}
}
