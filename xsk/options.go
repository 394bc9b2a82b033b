package xsk

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// ZeroCopy says which mode a socket is bound in.
type ZeroCopy uint8

const (
	// ZeroCopyOff binds in copy mode, the only one veth has.
	ZeroCopyOff ZeroCopy = iota
	// ZeroCopyPrefer tries zero-copy and falls back to copy mode, which
	// Negotiated.Fallbacks then reports.
	ZeroCopyPrefer
	// ZeroCopyRequire fails where the driver has no zero-copy.
	ZeroCopyRequire
)

// BusyPoll has the owner's syscalls run the device's NAPI instead of the
// softirq (Documentation/networking/napi.rst). The zero value is off.
type BusyPoll struct {
	Microseconds int // SO_BUSY_POLL; 0: off
	Budget       int // SO_BUSY_POLL_BUDGET, packets a poll; 0: the kernel's
	Prefer       bool
}

// Defaults of Options.
const (
	DefaultRing        = 1024
	DefaultBindTimeout = time.Second
	// KernelTXBudget is how many descriptors one kick takes where the kernel
	// has no XDP_MAX_TX_SKB_BUDGET.
	KernelTXBudget = 32
	// TXMetadataLen is sizeof(struct xsk_tx_metadata).
	TXMetadataLen = 24
)

// Options is what a socket asks for. The zero value of every field but IfIndex
// is usable. Open needs IfIndex and Queue; FromFD must be given the ring sizes,
// Headroom, MultiBuffer and TXMetadata the socket was opened with.
type Options struct {
	IfIndex int // of a device in the calling thread's network namespace
	Queue   int

	// Entries of each ring, powers of two; 0: DefaultRing.
	Fill, Completion, RX, TX int

	Headroom    int // bytes free before a received frame, besides KernelHeadroom
	ZeroCopy    ZeroCopy
	NeedWakeup  bool // the kernel flags when it wants a Kick or WakeFill
	MultiBuffer bool // frames longer than a chunk, by OptionContinues
	BusyPoll    BusyPoll
	TXBudget    int  // descriptors one Kick takes, 32..TX; 0: the kernel's
	TXMetadata  bool // OptionTXMetadata may be used; every frame needs TXMetadataLen free bytes before it in its chunk

	// SndBuf bounds the bytes of packets in flight (SO_SNDBUFFORCE; the kernel
	// doubles it); 0: a chunk for every TX entry.
	SndBuf int
	// BindTimeout bounds the wait for a queue that a closed socket has not
	// freed yet; 0: DefaultBindTimeout; negative: one try.
	BindTimeout time.Duration
}

// ErrOptions is a value in Options that no kernel takes.
var ErrOptions = errors.New("bad xsk options")

const maxRing = 1 << 20

func (o Options) withDefaults() (Options, error) {
	for _, r := range []struct {
		name    string
		entries *int
	}{{"fill", &o.Fill}, {"completion", &o.Completion}, {"rx", &o.RX}, {"tx", &o.TX}} {
		if *r.entries == 0 {
			*r.entries = DefaultRing
		}
		if n := *r.entries; n < 0 || n > maxRing || bits.OnesCount(uint(n)) != 1 {
			return o, fmt.Errorf("%w: %s ring of %d entries: use a power of two up to %d", ErrOptions, r.name, n, maxRing)
		}
	}
	if o.Headroom < 0 || o.Headroom >= MaxFrame {
		return o, fmt.Errorf("%w: headroom %d: use 0..%d", ErrOptions, o.Headroom, MaxFrame-1)
	}
	if o.TXBudget != 0 && (o.TXBudget < KernelTXBudget || o.TXBudget > o.TX) {
		return o, fmt.Errorf("%w: tx budget %d: use %d up to the tx ring's %d", ErrOptions, o.TXBudget, KernelTXBudget, o.TX)
	}
	if o.ZeroCopy > ZeroCopyRequire {
		return o, fmt.Errorf("%w: zero-copy mode %d is none", ErrOptions, o.ZeroCopy)
	}
	if o.SndBuf < 0 || o.BusyPoll.Microseconds < 0 || o.BusyPoll.Budget < 0 {
		return o, fmt.Errorf("%w: send buffer and busy-poll values must not be negative", ErrOptions)
	}
	if o.SndBuf == 0 {
		o.SndBuf = o.TX * ChunkSize
	}
	if o.BindTimeout == 0 {
		o.BindTimeout = DefaultBindTimeout
	}
	return o, nil
}

func (o Options) withDevice() error {
	if o.IfIndex <= 0 || o.Queue < 0 {
		return fmt.Errorf("%w: ifindex %d queue %d: name a device and a queue", ErrOptions, o.IfIndex, o.Queue)
	}
	return nil
}

// refused is the descriptor option bits these options do not allow.
func (o Options) refused() uint32 {
	allowed := uint32(0)
	if o.MultiBuffer {
		allowed |= OptionContinues
	}
	if o.TXMetadata {
		allowed |= OptionTXMetadata
	}
	return ^allowed
}

func (o Options) metadata() uint64 {
	if o.TXMetadata {
		return TXMetadataLen
	}
	return 0
}

// Fallback is something Options asked for that the kernel or driver refused
// and the socket works without.
type Fallback struct {
	What string // "zero-copy", "tx budget", "send buffer", "busy poll"
	Err  error
}

// Negotiated is what a socket got.
type Negotiated struct {
	ZeroCopy    bool // as XDP_OPTIONS says
	NeedWakeup  bool
	MultiBuffer bool
	TXMetadata  bool
	TXBudget    int
	Fallbacks   []Fallback
}
