// Package xsktest plays the kernel's side of an AF_XDP socket in plain memory,
// for tests that need no root, no device and no luck. It keeps the rules of
// net/xdp/xsk.c that a caller can see, and breaks them on demand.
package xsktest
