package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	db "picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/topology"
)

// ovsView is the part of the OVS database that matters here.
type ovsView struct {
	bridges  []topology.Bridge
	mappings map[string]string // physical network -> bridge
}

// readOVS reads the cache of an OVS session.
func readOVS(s *db.Session) ovsView {
	v := ovsView{mappings: map[string]string{}}
	for _, o := range db.Rows[db.OVS](s, db.TableOpenVSwitch) {
		for pair := range strings.SplitSeq(o.ExternalIDs["ovn-bridge-mappings"], ",") {
			if network, br, ok := strings.Cut(strings.TrimSpace(pair), ":"); ok {
				v.mappings[network] = br
			}
		}
	}
	ports := db.Rows[db.Port](s, db.TablePort)
	ifaces := db.Rows[db.Interface](s, db.TableInterface)
	for _, b := range db.Rows[db.Bridge](s, db.TableBridge) {
		br := topology.Bridge{Name: b.Name, Uplink: b.ExternalIDs["bridge-uplink"], MAC: b.OtherConfig["hwaddr"]}
		for _, id := range b.Ports {
			p := ports[id]
			if p == nil {
				continue
			}
			port := topology.Port{Name: p.Name, Localnet: p.ExternalIDs["ovn-localnet-port"]}
			for _, id := range p.Interfaces {
				i := ifaces[id]
				if i == nil {
					continue
				}
				no := 0
				if i.OFPort != nil {
					no = *i.OFPort
				}
				port.Interfaces = append(port.Interfaces, topology.Interface{Name: i.Name, Type: i.Type, OFPort: no})
				if i.Name == b.Name && br.MAC == "" && i.MACInUse != nil {
					br.MAC = *i.MACInUse
				}
			}
			br.Ports = append(br.Ports, port)
		}
		slices.SortFunc(br.Ports, func(a, b topology.Port) int { return cmp.Compare(a.Name, b.Name) })
		v.bridges = append(v.bridges, br)
	}
	slices.SortFunc(v.bridges, func(a, b topology.Bridge) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// physical lists the existing bridges that physical networks are mapped to.
func (v ovsView) physical() []string {
	var out []string
	for _, br := range v.mappings {
		if v.has(br) {
			out = append(out, br)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (v ovsView) has(br string) bool {
	return slices.ContainsFunc(v.bridges, func(b topology.Bridge) bool { return b.Name == br })
}

// readRouters reads this node's gateway routers, and northd's version, from an NB session. A
// router's network is in its port's external_ids; the port's name must be the one built from it.
func readRouters(s *db.Session, node string) ([]topology.Router, string) {
	ports := db.Rows[db.RouterPort](s, db.TableRouterPort)
	ages := map[string]time.Duration{} // by router port row
	for _, r := range db.Rows[db.Router](s, db.TableRouter) {
		if age := minAge(r.Options["mac_binding_age_threshold"]); age > 0 {
			for _, id := range r.Ports {
				ages[id] = age
			}
		}
	}
	var out []topology.Router
	for id, p := range ports {
		network := p.ExternalIDs["k8s.ovn.org/network"]
		if network == "" && p.ExternalIDs["gateway-physical-ip"] != "yes" || p.Name != topology.RouterPort(network, node) {
			continue
		}
		out = append(out, topology.Router{Network: network, Port: p.Name, MAC: p.MAC, Networks: prefixes(p.Networks), MaxAge: ages[id]})
	}
	slices.SortFunc(out, func(a, b topology.Router) int { return cmp.Compare(a.Port, b.Port) })
	version := ""
	for _, g := range db.Rows[db.NBGlobal](s, db.TableNBGlobal) {
		version = g.Options["northd_internal_version"]
	}
	return out, version
}

// minAge reads mac_binding_age_threshold: seconds, or from OVN 24.03 "CIDR:seconds;...;seconds"
// (ovn-nb(5)); the smallest that is not 0 counts, 0 if bindings never age.
func minAge(option string) time.Duration {
	least := 0
	for part := range strings.SplitSeq(option, ";") {
		if i := strings.LastIndexByte(part, ':'); i >= 0 {
			part = part[i+1:]
		}
		if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return time.Duration(least) * time.Second
}

// useStatic decides by northd's version, "24.09.1-20.37.0-76.8" in NB_Global options. An unknown
// version counts as old: mirroring is right everywhere, and static rows wedge an old northd's
// time. northd's cost was made linear by commit 42ffb62a5, in 25.03.
func useStatic(policy StaticPolicy, version string) bool {
	switch policy {
	case StaticAlways:
		return true
	case StaticNever:
		return false
	}
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	year, err1 := strconv.Atoi(parts[0])
	month, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (year > 25 || year == 25 && month >= 3)
}

// routerPorts gives the names of all router ports of the NB database.
func routerPorts(s *db.Session) map[string]bool {
	out := map[string]bool{}
	for p := range maps.Values(db.Rows[db.RouterPort](s, db.TableRouterPort)) {
		out[p.Name] = true
	}
	return out
}
