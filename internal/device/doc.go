// Package device is what ports and uplinks are made of in the kernel: the
// settings of a device, the XDP program on it with its pins, and the AF_XDP
// sockets of the data path.
//
// [Kernel] is what the agent asks for; [Netlink] is the real one, and package
// devicetest has one that counts every mutation and fails on demand. The
// interface reads before it writes: what is already as wanted is no mutation.
//
// How a fresh process recognises what is ours: owned.go.
//
// One goroutine at a time, in the network namespace the devices are in.
package device
