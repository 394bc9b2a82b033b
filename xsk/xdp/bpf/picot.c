// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
//
// The kernel part of the data path. It only decides which frames enter an
// AF_XDP socket; everything else is user space's.
//
// Each port kind has two programs. The _tag one reads the VLAN tag that the
// driver keeps beside the frame and must be bound to its device; the _plain one
// is for drivers that offer no such metadata, and for generic mode.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Outcomes; the order is the Go side's (counters.go).
enum outcome {
	REDIRECTED,
	DROPPED_EMPTY,
	PASSED,
	ERRORS,
	VLAN_REINSERTED,
	OUTCOMES,
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1); // set by the loader
} picot_xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, OUTCOMES);
} picot_counters SEC(".maps");

// The first 64 bits of the locator and of its mask, as they stand in a frame.
const volatile __u64 locator_prefix;
const volatile __u64 locator_mask;

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx,
					__be16 *proto, __u16 *tci) __ksym;

struct vlan_header {
	__be16 tpid;
	__be16 tci;
};

static __always_inline void count(__u32 outcome)
{
	__u64 *n = bpf_map_lookup_elem(&picot_counters, &outcome);

	if (n)
		*n += 1; // this CPU's own, and softirq does not nest
}

// An empty slot, or a queue past the map's end, is XDP_DROP: fail closed.
static __always_inline int to_socket(struct xdp_md *ctx)
{
	int action = bpf_redirect_map(&picot_xsks, ctx->rx_queue_index, XDP_DROP);

	count(action == XDP_REDIRECT ? REDIRECTED : DROPPED_EMPTY);
	return action;
}

static __always_inline int pass(void)
{
	count(PASSED);
	return XDP_PASS;
}

// Opens four bytes after the MAC addresses and writes the tag there.
static __always_inline int push_tag(struct xdp_md *ctx, __be16 tpid, __u16 tci)
{
	struct vlan_header *tag;
	void *data, *end;
	__u64 first;
	__u32 last;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*tag)))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(*tag) + ETH_HLEN > end)
		return -1;

	first = *(__u64 *)(data + sizeof(*tag));
	last = *(__u32 *)(data + sizeof(*tag) + 8);
	*(__u64 *)data = first;
	*(__u32 *)(data + 8) = last;
	tag = data + 2 * ETH_ALEN;
	tag->tpid = tpid;
	tag->tci = bpf_htons(tci);
	return 0;
}

static __always_inline int in_locator(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + sizeof(*eth);

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IPV6))
		return 0;
	return (*(__u64 *)&ip->daddr & locator_mask) == locator_prefix;
}

SEC("xdp.frags")
int picot_work_tag(struct xdp_md *ctx)
{
	__be16 tpid;
	__u16 tci;

	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &tpid, &tci)) {
		if (push_tag(ctx, tpid, tci)) {
			count(ERRORS);
			return XDP_DROP; // untagged it would enter another VLAN
		}
		count(VLAN_REINSERTED);
	}
	return to_socket(ctx);
}

SEC("xdp.frags")
int picot_work_plain(struct xdp_md *ctx)
{
	return to_socket(ctx);
}

SEC("xdp.frags")
int picot_up_tag(struct xdp_md *ctx)
{
	__be16 tpid;
	__u16 tci;

	if (!in_locator(ctx))
		return pass();
	// A tagged frame belongs to a VLAN of the host, not to the underlay.
	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &tpid, &tci))
		return pass();
	return to_socket(ctx);
}

SEC("xdp.frags")
int picot_up_plain(struct xdp_md *ctx)
{
	return in_locator(ctx) ? to_socket(ctx) : pass();
}
