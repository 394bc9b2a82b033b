package ovnkube

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const gatewayConfig = `{\"default\":{\"mode\":\"shared\",\"mac-address\":\"06:38:d6:00:00:02\",\"ip-addresses\":[\"172.18.0.3/16\"]}}`

func TestParseNode(t *testing.T) {
	n, err := ParseNode([]byte(`{"metadata":{"name":"node2","uid":"x","annotations":{"k8s.ovn.org/l3-gateway-config":"` + gatewayConfig + `"}},
		"spec":{"podCIDR":"10.1.0.0/24"},"status":{"addresses":[{"type":"Hostname","address":"node2"},
		{"type":"InternalIP","address":"172.18.0.3"},{"type":"InternalIP","address":"fd00:18::3"}],"images":[{"names":["a"]}]}}`))
	if err != nil || n.Name != "node2" || fmt.Sprint(n.InternalIPs) != "[172.18.0.3 fd00:18::3]" || CheckNode(n) != nil || n.L3Gateway == "" {
		t.Fatalf("%+v %v", n, err)
	}
	n.L3Gateway = "{"
	if err := CheckNode(n); err == nil {
		t.Error("a malformed annotation was taken")
	}
}

func TestParseUplink(t *testing.T) {
	u, err := ParseUplink([]byte(`{"spec":{"uplinkName":"fast","nodeName":"node2"},"status":{"macAddress":"06:38:d6:00:00:03",
		"ipAddresses":["172.19.0.3/16"],"ovsBridge":{"name":"br-up1"},"conditions":[{"type":"Ready"}]}}`))
	if got := fmt.Sprintf("%+v", u); err != nil || got != "{Name:fast Node:node2 Bridge:br-up1 MAC:06:38:d6:00:00:03 Addresses:[172.19.0.3/16]}" {
		t.Fatal(got, err)
	}
	if _, err := ParseUplink([]byte(`{"spec":{"uplinkName":"fast","nodeName":"node2"}}`)); err != nil {
		t.Errorf("a state without a status yet: %v", err)
	}
}

func TestRefusalsNameTheField(t *testing.T) {
	node := func(raw []byte) error { _, err := ParseNode(raw); return err }
	uplink := func(raw []byte) error { _, err := ParseUplink(raw); return err }
	for _, c := range []struct {
		parse       func([]byte) error
		text, field string
	}{
		{node, `{"metadata":{}}`, "metadata.name"},
		{node, `{"metadata":{"name":"a"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0"}]}}`, "status.addresses[0].address"},
		{node, `{"metadata":{"name":"a"},"status":{"addresses":3}}`, "status.addresses"},
		{uplink, `{"spec":{"nodeName":"a"}}`, "spec.uplinkName"},
		{uplink, `{"spec":{"uplinkName":"a"}}`, "spec.nodeName"},
		{uplink, `{"spec":{"uplinkName":"a","nodeName":"b"},"status":{"macAddress":"x"}}`, "status.macAddress"},
		{uplink, `{"spec":{"uplinkName":"a","nodeName":"b"},"status":{"ipAddresses":["1.2.3.4"]}}`, "status.ipAddresses[0]"},
	} {
		err := c.parse([]byte(c.text))
		var f *FieldError
		if !errors.As(err, &f) || f.Field != c.field || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want field %s", c.text, err, c.field)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"status":{"addresses":[{"type":"InternalIP","address":"::1"}]}}`))
	f.Add([]byte(`{"spec":{"uplinkName":"a","nodeName":"b"},"status":{"ipAddresses":["::/0"]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n, err := ParseNode(raw); err == nil {
			if n.Name == "" {
				t.Error("a node without a name")
			}
			_ = CheckNode(n)
		}
		if u, err := ParseUplink(raw); err == nil && (u.Name == "" || u.Node == "") {
			t.Error("an uplink of nobody")
		}
	})
}
