package xdp

// The include paths are Debian's for asm/types.h, which clang's bpf target
// does not search; the one that does not exist is ignored. bpf2go strips debug
// information, and maps this directory's path away.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -strip llvm-strip-14 -cc clang-14 picot bpf/picot.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
