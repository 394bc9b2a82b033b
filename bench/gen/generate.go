package gen

// See the package xsk/xdp about the include paths.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -strip llvm-strip-14 -cc clang-14 gen bpf/gen.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
