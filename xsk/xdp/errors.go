package xdp

import "errors"

// Errors returned by this package, to be tested with [errors.Is].
var (
	// ErrForeignProgram: the device has an XDP program that is not pinned
	// under this name. It is left alone.
	ErrForeignProgram = errors.New("foreign XDP program")
	// ErrPinBusy: the name's pin holds another device, which is alive.
	// Removing the pin would open that device.
	ErrPinBusy = errors.New("pin holds another live device")
	// ErrForeignPin: somebody else's link is pinned in the place of ours. It is
	// left alone: removing its pin might take it off.
	ErrForeignPin = errors.New("the pin's place is taken by somebody else's link")
	// ErrExchange: the kernel refuses to exchange the pinned program, an older
	// build's, for ours.
	ErrExchange = errors.New("the pinned program cannot be exchanged in place")
	// ErrMode: the pinned program runs in a mode that was not asked for, and
	// the kernel cannot change it without a gap.
	ErrMode = errors.New("pinned in another XDP mode")
	// ErrLost: the link is attached to no device any more.
	ErrLost = errors.New("the XDP program was taken off its device by force, or the device is gone")
	// ErrUnsure: it cannot be shown that the device's frames meet our program,
	// and not another one or none.
	ErrUnsure = errors.New("it is not certain that frames meet our program")
	// ErrNoDevice: the device is not in this network namespace.
	ErrNoDevice = errors.New("no such device")
	// ErrNotBPFFS: PinDir is not in a bpffs. See [EnsureBPFFS].
	ErrNotBPFFS = errors.New("not in a bpffs; mount one there first")
	// ErrMountNamespace: a bpffs mounted here would go with this process.
	ErrMountNamespace = errors.New("this mount namespace is not that of process 1, and the mount may end with it; enter the network namespace alone (nsenter --net=, not ip netns exec), or mount a bpffs outside first, on a directory not below /sys")
)

var errClosed = errors.New("closed")
