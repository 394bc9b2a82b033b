// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
//
// gen_source runs under BPF_PROG_TEST_RUN with live frames: the kernel makes the
// frames from its page pool, the program writes what changes and redirects
// them into a device. gen_sink counts and drops them at the other end.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FIELDS 4
#define WORDS 16 // of 8 bytes: the first 128 bytes of a frame
#define MAGIC 0x7063

// What each frame carries at stamp_at.
struct stamp {
	__be16 magic;
	__u16 balance; // keeps the checksum of the template valid
	__be32 flow;
	__be64 sequence; // within the flow, from 0
} __attribute__((packed));

const volatile __u32 stamp_at;	       // offset in the frame; 0: no stamp
const volatile __u32 flows = 1;	       // round robin over so many
const volatile __u32 field_at[FIELDS]; // 16-bit words base + flow; 0: unused
const volatile __u16 field_base[FIELDS];
const volatile __u16 field_summed[FIELDS]; // the word is in the checksum
const volatile __u32 template_sum;	   // of the words replaced, as they stand in memory
const volatile __u64 template[WORDS];
const volatile __u32 template_words; // restored before each use

__u32 flow;
__u64 sequence;
__u64 produced;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} out SEC(".maps");

static __always_inline __u32 fold(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum;
}

SEC("xdp")
int gen_source(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 i, at, changed = 0;

	// The pages are recycled, with what the receiver wrote into them.
#pragma unroll
	for (i = 0; i < WORDS; i++) {
		if (i >= template_words || data + 8 * i + 8 > end)
			break;
		*(__u64 *)(data + 8 * i) = template[i];
	}
#pragma unroll
	for (i = 0; i < FIELDS; i++) {
		at = field_at[i];
		if (!at || data + at + 2 > end)
			break;
		__u16 word = bpf_htons(field_base[i] + flow);

		*(__u16 *)(data + at) = word;
		if (field_summed[i])
			changed += word;
	}
	at = stamp_at;
	if (at && data + at + sizeof(struct stamp) <= end) {
		struct stamp *s = data + at;
		__u64 seq = bpf_cpu_to_be64(sequence);
		__u32 id = bpf_htonl(flow);

		s->magic = bpf_htons(MAGIC);
		s->flow = id;
		s->sequence = seq;
		s->balance = fold((__u64)template_sum +
				  (0xffff ^ fold((__u64)changed + bpf_htons(MAGIC) + id + fold(seq))));
	}
	if (++flow >= flows) {
		flow = 0;
		sequence++;
	}
	produced++;
	return bpf_redirect_map(&out, 0, 0);
}

// The receiving end.

enum { FRAMES, BYTES, OTHERS, COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, COUNTERS);
} sink_counters SEC(".maps");

// A flow seen at the sink, with a window over the newest 64 sequence numbers.
struct flow_state {
	struct bpf_spin_lock lock;
	__u32 queues; // bit per receive queue it came on, the last for 31 and up
	__u64 next;   // highest sequence seen + 1
	__u64 window; // bit i: next-1-i was seen
	__u64 frames;
	__u64 late;	 // behind a higher number, not seen before
	__u64 duplicate; // seen before
	__u64 stale;	 // behind the window: late or duplicate
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct flow_state);
	__uint(max_entries, 1); // set by the loader
} sink_flows SEC(".maps");

const volatile __u32 sink_stamp_at; // 0: every frame counts
const volatile __u32 sink_checks;   // follow each flow's sequence

static __always_inline void count(__u32 which, __u64 n)
{
	__u64 *c = bpf_map_lookup_elem(&sink_counters, &which);

	if (c)
		*c += n;
}

static __always_inline void check(__u32 id, __u64 seq, __u32 queue)
{
	struct flow_state *f = bpf_map_lookup_elem(&sink_flows, &id);
	__u64 ahead, behind;

	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	f->frames++;
	f->queues |= 1U << (queue < 31 ? queue : 31);
	if (seq >= f->next) {
		ahead = seq - f->next + 1;
		f->window = ahead < 64 ? f->window << ahead | 1 : 1;
		f->next = seq + 1;
	} else {
		behind = f->next - 1 - seq;
		if (behind >= 64) {
			f->stale++;
		} else if (f->window >> behind & 1) {
			f->duplicate++;
		} else {
			f->window |= 1ULL << behind;
			f->late++;
		}
	}
	bpf_spin_unlock(&f->lock);
}

SEC("xdp.frags")
int gen_sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 at = sink_stamp_at;

	if (at) {
		struct stamp *s = data + at;

		if ((void *)(s + 1) > end || s->magic != bpf_htons(MAGIC)) {
			count(OTHERS, 1);
			return XDP_PASS;
		}
		if (sink_checks)
			check(bpf_ntohl(s->flow), bpf_be64_to_cpu(s->sequence), ctx->rx_queue_index);
	}
	count(FRAMES, 1);
	count(BYTES, bpf_xdp_get_buff_len(ctx));
	return XDP_DROP;
}
