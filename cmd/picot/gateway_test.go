package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"picot.dev/picot/gateway"
	"picot.dev/picot/gateway/flows"
)

func parseGateway(t *testing.T, args ...string) (*gateway.Config, error) {
	t.Helper()
	cmd := &cobra.Command{Use: "x"}
	g := addGatewayFlags(cmd)
	g.addSwitch(cmd, "on")
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return g.configIfOn("node1")
}

func TestGatewayFlagsAreOffByDefaultAndHaveTheControllersDefaults(t *testing.T) {
	if c, err := parseGateway(t); c != nil || err != nil {
		t.Fatalf("%+v %v", c, err)
	}
	c, err := parseGateway(t, "--gateway")
	if err != nil {
		t.Fatal(err)
	}
	bare := gateway.Config{Node: "node1", IPv4: true, OVS: c.OVS, NB: c.NB}
	if err := bare.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.DisableUDNARPNDPFlood || c.Mode != flows.Own || c.Role != flows.Full || c.Cooldown != bare.Cooldown || c.Sweep != bare.Sweep ||
		c.Audit != bare.Audit || c.AgeThreshold != bare.AgeThreshold || c.Batch != bare.Batch || c.PhysicalNetwork != bare.PhysicalNetwork || c.RunDir != bare.RunDir {
		t.Errorf("%+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestGatewayFlagErrorsNameTheFlag(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--gateway-mode=own", "--gateway-mode: give --gateway too"},
		{"--disable-udn-arp-ndp-flood", "--disable-udn-arp-ndp-flood: give --gateway too"},
		{"--gateway --disable-udn-arp-ndp-flood", "--enable-network-segmentation"},
		{"--gateway --gateway-mode=x", "--gateway-mode: \"x\": give overlay, own"},
		{"--gateway --gateway-role=x", "--gateway-role"},
		{"--gateway --gateway-role=dpu", "--gateway-host-representor"},
		{"--gateway --gateway-static=x", "--gateway-static"},
		{"--gateway --gateway-ovs-db=x", "--gateway-ovs-db"},
		{"--gateway --gateway-nb-db=unix:a", "--gateway-nb-db"},
		{"--gateway --gateway-sb-db=ssl:[::1]:1", "--gateway-sb-db"},
		{"--gateway --gateway-vlan=4095", "--gateway-vlan"},
		{"--gateway --gateway-masquerade=10.0.0.0", "--gateway-masquerade"},
		{"--gateway --gateway-cooldown=290s", "--gateway-cooldown, --gateway-sweep"},
		{"--gateway --gateway-audit=0s", "--gateway-audit"},
		{"--gateway --gateway-batch=0", "--gateway-batch"},
		{"--gateway --gateway-ipv4=false --gateway-ipv6=false", "--gateway-ipv4"},
	} {
		if _, err := parseGateway(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
}

func TestGatewayFlagsReachTheConfig(t *testing.T) {
	c, err := parseGateway(t, "--gateway", "--disable-udn-arp-ndp-flood", "--enable-network-segmentation", "--gateway-mode=overlay",
		"--gateway-masquerade=169.254.0.0/17,fd69::/112", "--gateway-cooldown=20s", "--gateway-vlan=7", "--gateway-sb-db=tcp:[::1]:6642,tcp:[::2]:6642")
	if err != nil {
		t.Fatal(err)
	}
	if !c.DisableUDNARPNDPFlood || c.Mode != flows.Overlay || len(c.Masquerade) != 2 || c.Cooldown != 20*time.Second || c.VLAN != 7 || len(c.SB.Endpoints) != 2 {
		t.Errorf("%+v", c)
	}
}
