package packet

import "encoding/binary"

// The views below are the bytes themselves: getters read and setters write them
// in place. Valid compares every length the getters rely on; nothing else may
// be called before it held.

// Ethernet is a frame from its destination address on (IEEE 802.3).
type Ethernet []byte

func (b Ethernet) Valid() bool          { return len(b) >= EthernetLen }
func (b Ethernet) Destination() MAC     { return MAC(b[0:6]) }
func (b Ethernet) Source() MAC          { return MAC(b[6:12]) }
func (b Ethernet) SetDestination(m MAC) { *(*MAC)(b[0:6]) = m }
func (b Ethernet) SetSource(m MAC)      { *(*MAC)(b[6:12]) = m }

// Destination48 and Source48 are the addresses as MAC.Uint64 gives them, by one load.
func (b Ethernet) Destination48() uint64 { return binary.BigEndian.Uint64(b[0:8]) >> 16 }
func (b Ethernet) Source48() uint64      { return binary.BigEndian.Uint64(b[6:14]) >> 16 }

// EtherType is the outermost one, 0x8100 for a tagged frame.
func (b Ethernet) EtherType() uint16     { return binary.BigEndian.Uint16(b[12:14]) }
func (b Ethernet) SetEtherType(v uint16) { binary.BigEndian.PutUint16(b[12:14], v) }

// ARP is an Ethernet/IPv4 ARP or RARP packet (RFC 826, RFC 903).
type ARP []byte

// ARPLen is the length of an Ethernet/IPv4 ARP packet in bytes.
const ARPLen = 28

// ARP operations.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// Valid holds if the packet is long enough and is of Ethernet and IPv4.
func (b ARP) Valid() bool {
	return len(b) >= ARPLen && binary.BigEndian.Uint64(b[0:8])>>16 == 0x0001_0800_0604
}
func (b ARP) Op() uint16     { return binary.BigEndian.Uint16(b[6:8]) }
func (b ARP) SenderMAC() MAC { return MAC(b[8:14]) }
func (b ARP) SenderIP() IP   { return IPFrom4(binary.BigEndian.Uint32(b[14:18])) }
func (b ARP) TargetMAC() MAC { return MAC(b[18:24]) }
func (b ARP) TargetIP() IP   { return IPFrom4(binary.BigEndian.Uint32(b[24:28])) }
func (b ARP) SetOp(v uint16) { binary.BigEndian.PutUint16(b[6:8], v) }
func (b ARP) SetSender(m MAC, ip IP) {
	*(*MAC)(b[8:14]) = m
	binary.BigEndian.PutUint32(b[14:18], ip.V4())
}
func (b ARP) SetTarget(m MAC, ip IP) {
	*(*MAC)(b[18:24]) = m
	binary.BigEndian.PutUint32(b[24:28], ip.V4())
}

// SetHeader writes the fixed first six bytes: Ethernet, IPv4 and their lengths.
func (b ARP) SetHeader() {
	*(*[6]byte)(b[0:6]) = [6]byte{0, 1, 8, 0, 6, 4}
}
