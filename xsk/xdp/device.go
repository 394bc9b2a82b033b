package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// attachedSKB is XDP_ATTACHED_SKB of linux/if_link.h.
const attachedSKB = 2

// device is what rtnetlink says of a device and its XDP programs.
type device struct {
	name     string
	attached uint8 // XDP_ATTACHED_*, linux/if_link.h
	programs []ebpf.ProgramID
}

func (d *device) mode() Mode {
	if d.attached == attachedSKB {
		return Generic
	}
	return Native
}

func (d *device) runs(id ebpf.ProgramID) bool {
	for _, p := range d.programs {
		if p == id {
			return true
		}
	}
	return false
}

// queryDevice asks the network namespace of the calling thread.
func queryDevice(ifindex int) (*device, error) {
	reply, err := getLink(ifindex)
	if errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("interface index %d: %w", ifindex, ErrNoDevice)
	}
	if err != nil {
		return nil, fmt.Errorf("query interface index %d: %w", ifindex, err)
	}
	return parseDevice(reply), nil
}

// parseDevice reads the payload of an RTM_NEWLINK.
func parseDevice(payload []byte) *device {
	d := &device{}
	walkAttrs(payload[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			d.name = unix.ByteSliceToString(value)
		case unix.IFLA_XDP:
			walkAttrs(value, d.setXDP)
		}
	})
	return d
}

func (d *device) setXDP(kind uint16, value []byte) {
	switch kind {
	case unix.IFLA_XDP_ATTACHED:
		if len(value) > 0 {
			d.attached = value[0]
		}
	case unix.IFLA_XDP_PROG_ID, unix.IFLA_XDP_DRV_PROG_ID, unix.IFLA_XDP_SKB_PROG_ID, unix.IFLA_XDP_HW_PROG_ID:
		if len(value) < 4 {
			return
		}
		id := ebpf.ProgramID(binary.NativeEndian.Uint32(value))
		if id != 0 && !d.runs(id) {
			d.programs = append(d.programs, id)
		}
	}
}

// getLink sends one RTM_GETLINK and returns the payload of its RTM_NEWLINK.
func getLink(ifindex int) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}

	request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(request[unix.SizeofNlMsghdr+4:], uint32(ifindex))
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}

	reply := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	return linkPayload(reply[:n])
}

func linkPayload(message []byte) ([]byte, error) {
	if len(message) < unix.SizeofNlMsghdr {
		return nil, errors.New("short netlink message")
	}
	length := int(binary.NativeEndian.Uint32(message))
	kind := binary.NativeEndian.Uint16(message[4:])
	if length < unix.SizeofNlMsghdr || length > len(message) {
		return nil, errors.New("truncated netlink message")
	}
	payload := message[unix.SizeofNlMsghdr:length]
	switch {
	case kind == unix.NLMSG_ERROR && len(payload) >= 4:
		return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(payload)))
	case kind == unix.RTM_NEWLINK && len(payload) >= unix.SizeofIfInfomsg:
		return payload, nil
	}
	return nil, fmt.Errorf("unexpected netlink message type %d", kind)
}

// walkAttrs calls visit for every whole netlink attribute in b.
func walkAttrs(b []byte, visit func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		visit(kind, b[unix.SizeofNlAttr:length])
		b = b[min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
}
