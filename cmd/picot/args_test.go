package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestWrongArguments holds that what is wrong on the command line is said as
// such, before any agent is asked or started.
func TestWrongArguments(t *testing.T) {
	for _, c := range []struct{ line, say string }{
		{"agent --takeover maybe", "--takeover=auto"},
		{"agent --takeover=maybe --node-name n --uplink u --manifests /nonexistent", "give auto, always or never"},
		{"agent start", "takes flags only"},
		{"show fdb -o bogus --run-dir /nonexistent", "give table, json or yaml"},
		{"pcap --reason nosuch --run-dir /nonexistent", "--reason \"nosuch\" is no drop reason"},
		{"pcap --snaplen 100000 --run-dir /nonexistent", "--snaplen 100000: give 1 to 65536 bytes"},
		{"pcap --mac x --run-dir /nonexistent", "--mac: not a MAC address"},
		{"pcap --run-dir /nonexistent", "no agent answers at /nonexistent/picot.sock: start one, or give its --run-dir"},
		{"pcap all", "unknown command"},
		{"pcap --port= --run-dir /nonexistent", "--port is given, but empty"},
		{"pcap --ip= --run-dir /nonexistent", "--ip is given, but empty"},
		{"pcap --mac= --run-dir /nonexistent", "--mac is given, but empty"},
		{"pcap --network= --run-dir /nonexistent", "--network is given, but empty"},
		{"pcap --reason= --run-dir /nonexistent", "--reason is given, but empty"},
		{"pcap --write= --run-dir /nonexistent", "--write is given, but empty"},
		{"pcap --snaplen 50 --ip 10.0.0.1 --run-dir /nonexistent", "give at least 512 bytes"},
		{"show fdb -o json --run-dir /nonexistent", "no agent answers"},
	} {
		t.Run(c.line, func(t *testing.T) {
			cmd := root()
			cmd.SetArgs(strings.Fields(c.line))
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("said %v, want %q", err, c.say)
			}
		})
	}
}
