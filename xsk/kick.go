package xsk

import "golang.org/x/sys/unix"

// KickResult is what became of a Kick or WakeFill, by the errno.
type KickResult uint8

const (
	// KickOK: done. Not "drained": the budget may be spent, see TXQueued.
	KickOK KickResult = iota
	// KickAgain (EAGAIN): budget spent, completion ring full, send buffer
	// full or device queue full. Reap completions and kick again; if neither
	// moves, leave it for the next round.
	KickAgain
	// KickBusy (EBUSY): the device dropped one frame and completed it. Count
	// it and go on, unless the carrier is gone.
	KickBusy
	// KickDown (ENETDOWN): the device is administratively down. Usable again
	// once it is up.
	KickDown
	// KickGone (ENXIO, EBADF): the device is deleted, or the socket closed.
	// Close the port.
	KickGone
	// KickPoisoned (EINVAL): the frame at the head has TX metadata the kernel
	// does not take. It stays there and its completion repeats with every
	// kick: rebuild the socket.
	KickPoisoned
	// KickNoBufs (ENOBUFS, ENOMEM): no memory for the packet. Nothing is
	// lost; leave it for the next round.
	KickNoBufs
	// KickOther: an errno with no rule, see Errno. Count it and treat it as
	// KickAgain.
	KickOther
	// NumKickResults is the number of results, for an array of counters.
	NumKickResults
)

var kickNames = [NumKickResults]string{"ok", "again", "busy", "down", "gone", "poisoned", "no-bufs", "other"}

func (k KickResult) String() string {
	if k < NumKickResults {
		return kickNames[k]
	}
	return "invalid"
}

// classify is the rule of every errno that xsk_sendmsg and xsk_recvmsg
// (net/xdp/xsk.c) return.
func classify(e unix.Errno) KickResult {
	switch e {
	case 0:
		return KickOK
	case unix.EAGAIN, unix.EINTR:
		return KickAgain
	case unix.EBUSY:
		return KickBusy
	case unix.ENETDOWN:
		return KickDown
	case unix.ENXIO, unix.EBADF:
		return KickGone
	case unix.EINVAL:
		return KickPoisoned
	case unix.ENOBUFS, unix.ENOMEM:
		return KickNoBufs
	}
	return KickOther
}

// Kick has the kernel send what is in the TX ring, up to the TX budget, on
// this thread: one sendto that does not block. It keeps its P, since it is
// bounded by the budget and a handover would cost more.
func (s *Socket) Kick() KickResult {
	if s.peer != nil {
		s.errno = s.peer.kick()
	} else {
		_, _, s.errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
	return classify(s.errno)
}

// WakeFill has the kernel look at the fill ring again, and with busy polling
// run the device's receive: one recvfrom that does not block.
func (s *Socket) WakeFill() KickResult {
	if s.peer != nil {
		s.errno = s.peer.wakeFill()
	} else {
		_, _, s.errno = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
	return classify(s.errno)
}

// Errno is the errno of the last Kick or WakeFill, 0 if it succeeded.
func (s *Socket) Errno() unix.Errno { return s.errno }
