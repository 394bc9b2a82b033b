package packet

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestTags: what a frame carried between its MACs and its EtherType is written
// again, but for the priority.
func TestTags(t *testing.T) {
	for _, tt := range []struct{ name, tags, want string }{
		{"none", "", ""},
		{"one", "81000064", "81000064"},
		{"priority", "8100e064", "81000064"},
		{"priority alone", "8100e000", "81000000"},
		{"largest", "81000fff", "81000fff"},
		{"service", "88a80064", "88a80064"},
		{"two", "88a800c881000064", "88a800c881000064"},
		{"two of a kind", "8100000181000002", "8100000181000002"},
		{"three", "810000018100000281000003", "8100000181000002"},
	} {
		tags, _ := hex.DecodeString(tt.tags)
		want, _ := hex.DecodeString(tt.want)
		frame := append(append(make([]byte, 12), tags...), 0x12, 0x34)
		var l Layout
		if !Parse(frame, &l) {
			t.Fatalf("%s: not parsed", tt.name)
		}
		got := TagsOf(frame, &l)
		b := make([]byte, got.Len())
		got.Put(b)
		if !bytes.Equal(b, want) {
			t.Errorf("%s: %x, want %x", tt.name, b, want)
		}
	}
	if n := TagsOf([]byte{1}, &Layout{Tags: 2}).Len(); n != 0 {
		t.Errorf("%d bytes of tags of a frame that has none", n)
	}
}
