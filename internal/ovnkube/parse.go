package ovnkube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"picot.dev/picot/gateway/static"
	"picot.dev/picot/internal/packet"
)

// Names of the two kinds.
const (
	KindNode        = "Node"
	NodeAPI         = "v1"
	KindUplinkState = "UplinkState"
	UplinkGroup     = "k8s.ovn.org"  // served in any version
	UplinkResource  = "uplinkstates" // in the API path
	L3Gateway       = "k8s.ovn.org/l3-gateway-config"
)

// IsUplinkAPI reports whether an apiVersion is one of UplinkState.
func IsUplinkAPI(apiVersion string) bool {
	group, version, ok := strings.Cut(apiVersion, "/")
	return ok && group == UplinkGroup && version != ""
}

// FieldError says which field cannot be taken; Field is a path such as status.addresses[0].address.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// ErrMissing: a field without which the object says nothing is not set.
var ErrMissing = errors.New("not set")

func bad(err error, field string, at ...any) error {
	return &FieldError{fmt.Sprintf(field, at...), err}
}

type metadata struct {
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
}

// ParseNode reads a Node. The annotation is handed on as it is: who follows a node keeps its last
// good state (static.Book), and CheckNode is for who does not.
func ParseNode(raw []byte) (static.Node, error) {
	var in struct {
		Metadata metadata `json:"metadata"`
		Status   struct {
			Addresses []struct {
				Type    string `json:"type"`
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"status"`
	}
	if err := decode(raw, &in); err != nil {
		return static.Node{}, err
	}
	n := static.Node{Name: in.Metadata.Name, L3Gateway: in.Metadata.Annotations[L3Gateway]}
	if n.Name == "" {
		return static.Node{}, bad(ErrMissing, "metadata.name")
	}
	for i, a := range in.Status.Addresses {
		if a.Type != "InternalIP" {
			continue
		}
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			return static.Node{}, bad(err, "status.addresses[%d].address", i)
		}
		n.InternalIPs = append(n.InternalIPs, ip.Unmap())
	}
	return n, nil
}

// CheckNode refuses a node whose annotation is malformed.
func CheckNode(n static.Node) error {
	if n.L3Gateway == "" {
		return nil
	}
	if _, err := static.ParseGateway(n.L3Gateway); err != nil {
		return bad(err, "metadata.annotations")
	}
	return nil
}

// ParseUplink reads an UplinkState. A status that is not filled in yet is no error: such a state
// gives no neighbours.
func ParseUplink(raw []byte) (static.Uplink, error) {
	var in struct {
		Spec struct {
			UplinkName string `json:"uplinkName"`
			NodeName   string `json:"nodeName"`
		} `json:"spec"`
		Status struct {
			MACAddress  string   `json:"macAddress"`
			IPAddresses []string `json:"ipAddresses"`
			OVSBridge   struct {
				Name string `json:"name"`
			} `json:"ovsBridge"`
		} `json:"status"`
	}
	if err := decode(raw, &in); err != nil {
		return static.Uplink{}, err
	}
	u := static.Uplink{Name: in.Spec.UplinkName, Node: in.Spec.NodeName, Bridge: in.Status.OVSBridge.Name, MAC: in.Status.MACAddress}
	switch {
	case u.Name == "":
		return static.Uplink{}, bad(ErrMissing, "spec.uplinkName")
	case u.Node == "":
		return static.Uplink{}, bad(ErrMissing, "spec.nodeName")
	}
	if u.MAC != "" {
		if _, err := packet.ParseMAC(u.MAC); err != nil {
			return static.Uplink{}, bad(err, "status.macAddress")
		}
	}
	for i, a := range in.Status.IPAddresses {
		p, err := netip.ParsePrefix(a)
		if err != nil {
			return static.Uplink{}, bad(err, "status.ipAddresses[%d]", i)
		}
		u.Addresses = append(u.Addresses, p)
	}
	return u, nil
}

func decode(raw []byte, out any) error {
	err := json.Unmarshal(raw, out)
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return bad(fmt.Errorf("a %s does not fit here", t.Value), "%s", t.Field)
	}
	return err
}
