package xdp

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Errors returned by this package, to be tested with [errors.Is].
var (
	// ErrForeignProgram: the device has an XDP program that is not pinned
	// under this name. It is left alone.
	ErrForeignProgram = errors.New("foreign XDP program")
	// ErrPinBusy: the name's pin holds another device, which is alive.
	// Removing the pin would open that device.
	ErrPinBusy = errors.New("pin holds another live device")
	// ErrMode: the pinned program runs in a mode that was not asked for, and
	// the kernel cannot change it without a gap.
	ErrMode = errors.New("pinned in another XDP mode")
	// ErrNoDevice: the device is not in this network namespace.
	ErrNoDevice = errors.New("no such device")
)

var errClosed = errors.New("closed")

// isGone: the kernel's answer to detaching a link without a device.
func isGone(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) }
