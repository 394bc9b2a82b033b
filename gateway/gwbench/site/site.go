// Package site makes the databases of one node by hand: three real ovsdb-servers and the rows that
// ovn-kubernetes, northd, ovn-controller and vswitchd would have put there, without those
// programs. It serves tests and benchmarks of sizes at which northd is the slower part.
//
// A Site is used by one goroutine.
package site

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	db "picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/ovsdb/ovsdbtest"
	"picot.dev/picot/gateway/topology"
)

// Site is one node's databases.
type Site struct {
	Node        string
	OVS, NB, SB *ovsdbtest.Server

	ctx    context.Context
	stop   context.CancelFunc
	dir    string
	admin  map[string]*db.DB
	ofport int
	tunnel int
}

// MAC is shared by the bridges and routers of a Site.
const MAC = "06:38:d6:0b:4b:a7"

// New starts the servers. Close ends them.
func New(node string) (*Site, error) {
	dir, err := os.MkdirTemp("", "gwsite")
	if err != nil {
		return nil, err
	}
	s := &Site{Node: node, dir: dir, admin: map[string]*db.DB{}, ofport: 1}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, d := range []struct {
		server *(*ovsdbtest.Server)
		schema string
		name   string
		table  string
	}{{&s.OVS, ovsdbtest.OVS, db.OpenVSwitch, db.TableOpenVSwitch}, {&s.NB, ovsdbtest.NB, db.Northbound, db.TableNBGlobal}, {&s.SB, ovsdbtest.SB, db.Southbound, ""}} {
		if *d.server, err = ovsdbtest.New(dir, d.schema); err != nil {
			s.Close()
			return nil, err
		}
		r, err := db.ParseRemote((*d.server).Remote(), db.Files{})
		if err != nil {
			return nil, err
		}
		table := db.Table{Name: d.table}
		if d.table == "" { // something small: nothing matches
			table = db.Table{Name: db.TableMACBinding, Where: []ovsdb.Condition{ovsdb.NewCondition("logical_port", ovsdb.ConditionEqual, "none")}}
		}
		a := db.New(db.Options{Database: d.name, Remote: r, TransactTimeout: 2 * time.Minute, ProbeInterval: time.Minute}, table)
		s.admin[d.name] = a
		go a.Run(s.ctx)
	}
	_, err = s.Do(db.OpenVSwitch, ovsdb.Operation{Op: "insert", Table: "Open_vSwitch", Row: ovsdb.Row{"external_ids": text("system-id", "chassis-"+node)}})
	if err == nil {
		_, err = s.Do(db.Northbound, ovsdb.Operation{Op: "insert", Table: "NB_Global", Row: ovsdb.Row{"name": node}})
	}
	return s, err
}

// Close ends the servers and removes their files.
func (s *Site) Close() {
	s.stop()
	for _, o := range []*ovsdbtest.Server{s.OVS, s.NB, s.SB} {
		if o != nil {
			o.Kill()
		}
	}
	_ = os.RemoveAll(s.dir)
}

// Dir holds the servers' files.
func (s *Site) Dir() string { return s.dir }

// Do runs operations on a database as another program would.
func (s *Site) Do(database string, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if sess := s.admin[database].Session(); sess != nil {
			return sess.Transact(s.ctx, ops...)
		}
		if time.Now().After(end) {
			return nil, s.admin[database].Err()
		}
	}
}

func text(kv ...string) ovsdb.OvsMap {
	m := map[any]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return ovsdb.OvsMap{GoMap: m}
}

func named(n string) ovsdb.UUID { return ovsdb.UUID{GoUUID: n} }

func add(column string, ids ...any) []ovsdb.Mutation {
	return []ovsdb.Mutation{{Column: column, Mutator: ovsdb.MutateOperationInsert, Value: ovsdb.OvsSet{GoSet: ids}}}
}

func where(column string, v any) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition(column, ovsdb.ConditionEqual, v)}
}

// everywhere holds for every row; libovsdb leaves out an empty condition, which the server refuses.
func everywhere() []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionNotEqual, ovsdb.UUID{GoUUID: "00000000-0000-0000-0000-000000000000"})}
}

// AddBridge makes a bridge with an uplink port named phys.
func (s *Site) AddBridge(name, phys string) error {
	_, err := s.Do(db.OpenVSwitch,
		ovsdb.Operation{Op: "insert", Table: "Interface", UUIDName: "i", Row: ovsdb.Row{"name": phys, "ofport": s.port()}},
		ovsdb.Operation{Op: "insert", Table: "Port", UUIDName: "p", Row: ovsdb.Row{"name": phys, "interfaces": named("i")}},
		ovsdb.Operation{Op: "insert", Table: "Bridge", UUIDName: "b", Row: ovsdb.Row{"name": name, "ports": named("p"),
			"other_config": text("hwaddr", MAC), "external_ids": text("bridge-uplink", phys)}},
		ovsdb.Operation{Op: "mutate", Table: "Open_vSwitch", Mutations: add("bridges", named("b")), Where: everywhere()})
	return err
}

func (s *Site) port() int { s.ofport++; return s.ofport }

// Map sets ovn-bridge-mappings: "physnet:br-ex".
func (s *Site) Map(mappings string) error {
	_, err := s.Do(db.OpenVSwitch, ovsdb.Operation{Op: "update", Table: "Open_vSwitch", Where: everywhere(),
		Row: ovsdb.Row{"external_ids": text("system-id", "chassis-"+s.Node, "ovn-bridge-mappings", mappings)}})
	return err
}

// AddPatch makes the bridge's end of a localnet port's patch, as ovn-controller does. An ofport of
// 0 is not given yet.
func (s *Site) AddPatch(bridge, localnet string, ofport int) error {
	name := topology.PatchPort(localnet)
	iface := ovsdb.Row{"name": name, "type": "patch"}
	if ofport != 0 {
		iface["ofport"] = ofport
	}
	_, err := s.Do(db.OpenVSwitch,
		ovsdb.Operation{Op: "insert", Table: "Interface", UUIDName: "i", Row: iface},
		ovsdb.Operation{Op: "insert", Table: "Port", UUIDName: "p", Row: ovsdb.Row{"name": name, "interfaces": named("i"), "external_ids": text("ovn-localnet-port", localnet)}},
		ovsdb.Operation{Op: "mutate", Table: "Bridge", Mutations: add("ports", named("p")), Where: where("name", bridge)})
	return err
}

// RemovePatch removes it again.
func (s *Site) RemovePatch(bridge, localnet string) error {
	res, err := s.Do(db.OpenVSwitch, ovsdb.Operation{Op: "select", Table: "Port", Columns: []string{"_uuid"}, Where: where("name", topology.PatchPort(localnet))})
	if err != nil || len(res[0].Rows) == 0 {
		return fmt.Errorf("no patch of %s: %w", localnet, err)
	}
	_, err = s.Do(db.OpenVSwitch, ovsdb.Operation{Op: "mutate", Table: "Bridge", Where: where("name", bridge),
		Mutations: []ovsdb.Mutation{{Column: "ports", Mutator: ovsdb.MutateOperationDelete, Value: ovsdb.OvsSet{GoSet: []any{res[0].Rows[0]["_uuid"]}}}}})
	return err
}

// SetOFPort gives a patch port another number; 0 takes it away.
func (s *Site) SetOFPort(localnet string, ofport int) error {
	var v any = ofport
	if ofport == 0 {
		v = ovsdb.OvsSet{GoSet: []any{}}
	}
	_, err := s.Do(db.OpenVSwitch, ovsdb.Operation{Op: "update", Table: "Interface", Row: ovsdb.Row{"ofport": v}, Where: where("name", topology.PatchPort(localnet))})
	return err
}

// AddRouter makes a network's gateway router in the NB database: "" is the default network.
func (s *Site) AddRouter(network string, age int, networks ...string) error {
	ids := text("gateway-physical-ip", "yes")
	if network != "" {
		ids = text("k8s.ovn.org/network", network)
	}
	nets := make([]any, len(networks))
	for i, n := range networks {
		nets[i] = n
	}
	_, err := s.Do(db.Northbound,
		ovsdb.Operation{Op: "insert", Table: "Logical_Router_Port", UUIDName: "p", Row: ovsdb.Row{"name": topology.RouterPort(network, s.Node), "mac": MAC,
			"networks": ovsdb.OvsSet{GoSet: nets}, "external_ids": ids}},
		ovsdb.Operation{Op: "insert", Table: "Logical_Router", Row: ovsdb.Row{"name": topology.GatewayRouter(network, s.Node), "ports": named("p"),
			"options": text("mac_binding_age_threshold", fmt.Sprint(age))}})
	return err
}

// RemoveRouter deletes it, leaving rows that name its port.
func (s *Site) RemoveRouter(network string) error {
	_, err := s.Do(db.Northbound, ovsdb.Operation{Op: "delete", Table: "Logical_Router", Where: where("name", topology.GatewayRouter(network, s.Node))})
	return err
}

// Bind makes the SB rows northd would for the router's port: a new datapath each time.
func (s *Site) Bind(network string) error {
	s.tunnel++
	_, err := s.Do(db.Southbound,
		ovsdb.Operation{Op: "insert", Table: "Datapath_Binding", UUIDName: "d", Row: ovsdb.Row{"tunnel_key": s.tunnel}},
		ovsdb.Operation{Op: "insert", Table: "Port_Binding", Row: ovsdb.Row{"logical_port": topology.RouterPort(network, s.Node), "type": "l3gateway", "datapath": named("d"), "tunnel_key": 1}})
	return err
}

// Unbind removes the port's binding, its datapath and the datapath's rows, as northd does.
func (s *Site) Unbind(network string) error {
	port := topology.RouterPort(network, s.Node)
	res, err := s.Do(db.Southbound, ovsdb.Operation{Op: "select", Table: "Port_Binding", Columns: []string{"datapath"}, Where: where("logical_port", port)})
	if err != nil || len(res[0].Rows) == 0 {
		return fmt.Errorf("no binding of %s: %w", port, err)
	}
	dp := res[0].Rows[0]["datapath"]
	_, err = s.Do(db.Southbound,
		ovsdb.Operation{Op: "delete", Table: "MAC_Binding", Where: where("datapath", dp)},
		ovsdb.Operation{Op: "delete", Table: "Port_Binding", Where: where("logical_port", port)},
		ovsdb.Operation{Op: "delete", Table: "Datapath_Binding", Where: where("_uuid", dp)})
	return err
}

// AddNetwork makes everything of one network on a bridge.
func (s *Site) AddNetwork(bridge, network string, networks ...string) error {
	if err := s.AddRouter(network, 300, networks...); err != nil {
		return err
	}
	if err := s.Bind(network); err != nil {
		return err
	}
	return s.AddPatch(bridge, topology.LocalnetPort(bridge, network, s.Node), s.port())
}

// Learn puts a row into the SB database as ovn-controller does for a router port, or changes it.
func (s *Site) Learn(network, ip, mac string, at time.Time) error {
	port := topology.RouterPort(network, s.Node)
	res, err := s.Do(db.Southbound, ovsdb.Operation{Op: "select", Table: "Port_Binding", Columns: []string{"datapath"}, Where: where("logical_port", port)})
	if err != nil || len(res[0].Rows) == 0 {
		return fmt.Errorf("no binding of %s: %w", port, err)
	}
	both := append(where("logical_port", port), where("ip", ip)...)
	upd, err := s.Do(db.Southbound, ovsdb.Operation{Op: "update", Table: "MAC_Binding", Where: both, Row: ovsdb.Row{"mac": mac, "timestamp": at.UnixMilli()}})
	if err != nil || upd[0].Count > 0 {
		return err
	}
	_, err = s.Do(db.Southbound, ovsdb.Operation{Op: "insert", Table: "MAC_Binding", Row: ovsdb.Row{"logical_port": port, "ip": ip, "mac": mac, "timestamp": at.UnixMilli(), "datapath": res[0].Rows[0]["datapath"]}})
	return err
}

// LearnMany puts many rows into a port without one.
func (s *Site) LearnMany(network string, n int, ip func(int) string, mac func(int) string, at time.Time) error {
	port := topology.RouterPort(network, s.Node)
	res, err := s.Do(db.Southbound, ovsdb.Operation{Op: "select", Table: "Port_Binding", Columns: []string{"datapath"}, Where: where("logical_port", port)})
	if err != nil || len(res[0].Rows) == 0 {
		return fmt.Errorf("no binding of %s: %w", port, err)
	}
	var ops []ovsdb.Operation
	for i := range n {
		ops = append(ops, ovsdb.Operation{Op: "insert", Table: "MAC_Binding", Row: ovsdb.Row{"logical_port": port, "ip": ip(i), "mac": mac(i), "timestamp": at.UnixMilli(), "datapath": res[0].Rows[0]["datapath"]}})
	}
	_, err = s.Do(db.Southbound, ops...)
	return err
}

// Binding is a row of MAC_Binding or Static_MAC_Binding.
type Binding struct {
	UUID, MAC string
	Timestamp int64
	Override  bool
}

// Bindings gives the rows of a table, by "port ip".
func (s *Site) Bindings(database, table string) (map[string]Binding, error) {
	res, err := s.Do(database, ovsdb.Operation{Op: "select", Table: table})
	if err != nil {
		return nil, err
	}
	out := make(map[string]Binding, len(res[0].Rows))
	for _, r := range res[0].Rows {
		ts, _ := r["timestamp"].(float64)
		over, _ := r["override_dynamic_mac"].(bool)
		out[r["logical_port"].(string)+" "+r["ip"].(string)] = Binding{r["_uuid"].(ovsdb.UUID).GoUUID, r["mac"].(string), int64(ts), over}
	}
	return out, nil
}

// Dynamic gives the MAC_Binding rows by "network ip"; "default" is the default network.
func (s *Site) Dynamic() (map[string]Binding, error) {
	return s.short(db.Southbound, db.TableMACBinding)
}

// Static gives the Static_MAC_Binding rows likewise.
func (s *Site) Static() (map[string]Binding, error) {
	return s.short(db.Northbound, db.TableStaticMACBinding)
}

func (s *Site) short(database, table string) (map[string]Binding, error) {
	rows, err := s.Bindings(database, table)
	out := make(map[string]Binding, len(rows))
	for k, v := range rows {
		port, ip, _ := strings.Cut(k, " ")
		network := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(port, "rtoe-GR_"), s.Node), "_")
		if network == "" {
			network = "default"
		}
		out[network+" "+ip] = v
	}
	return out, err
}

// PutStatic writes one NB row as another program would.
func (s *Site) PutStatic(port, ip, mac string, override bool) error {
	_, err := s.Do(db.Northbound, ovsdb.Operation{Op: "insert", Table: db.TableStaticMACBinding,
		Row: ovsdb.Row{"logical_port": port, "ip": ip, "mac": mac, "override_dynamic_mac": override}})
	return err
}

// Delete removes rows of a table of a database where a column has a value; "" removes all.
func (s *Site) Delete(database, table, column string, v any) (int, error) {
	cond := everywhere()
	if column != "" {
		cond = where(column, v)
	}
	res, err := s.Do(database, ovsdb.Operation{Op: "delete", Table: table, Where: cond})
	if err != nil {
		return 0, err
	}
	return res[0].Count, nil
}
