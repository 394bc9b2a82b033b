package ovsdb

import (
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// Names of the databases, as list_dbs gives them.
const (
	OpenVSwitch = "Open_vSwitch"
	Northbound  = "OVN_Northbound"
	Southbound  = "OVN_Southbound"
)

// Names of the tables picot reads.
const (
	TableOpenVSwitch       = "Open_vSwitch"
	TableBridge            = "Bridge"
	TablePort              = "Port"
	TableInterface         = "Interface"
	TableNBGlobal          = "NB_Global"
	TableRouter            = "Logical_Router"
	TableRouterPort        = "Logical_Router_Port"
	TableStaticMACBinding  = "Static_MAC_Binding"
	TableMACBinding        = "MAC_Binding"
	TablePortBinding       = "Port_Binding"
	columnUUID             = "_uuid"
	tagName                = "ovsdb"
	portBindingGatewayType = "l3gateway"
)

// OVS is the one row of Open_vSwitch.
type OVS struct {
	UUID        string            `ovsdb:"_uuid"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Bridge is a row of Open_vSwitch's Bridge; Ports are Port row UUIDs.
type Bridge struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Ports       []string          `ovsdb:"ports"`
	OtherConfig map[string]string `ovsdb:"other_config"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Port is a row of Open_vSwitch's Port; Interfaces are Interface row UUIDs, several on a bond.
type Port struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Interfaces  []string          `ovsdb:"interfaces"`
	Tag         *int              `ovsdb:"tag"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Interface is a row of Open_vSwitch's Interface. OFPort is nil until vswitchd has tried to open
// the device, and -1 when it could not.
type Interface struct {
	UUID     string            `ovsdb:"_uuid"`
	Name     string            `ovsdb:"name"`
	Type     string            `ovsdb:"type"`
	OFPort   *int              `ovsdb:"ofport"`
	MACInUse *string           `ovsdb:"mac_in_use"`
	Options  map[string]string `ovsdb:"options"`
}

// NBGlobal is the one row of NB_Global. northd writes its own version into Options.
type NBGlobal struct {
	UUID    string            `ovsdb:"_uuid"`
	Name    string            `ovsdb:"name"`
	Options map[string]string `ovsdb:"options"`
}

// Router is a row of Logical_Router; Ports are Logical_Router_Port row UUIDs.
type Router struct {
	UUID    string            `ovsdb:"_uuid"`
	Name    string            `ovsdb:"name"`
	Ports   []string          `ovsdb:"ports"`
	Options map[string]string `ovsdb:"options"`
}

// RouterPort is a row of Logical_Router_Port.
type RouterPort struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	MAC         string            `ovsdb:"mac"`
	Networks    []string          `ovsdb:"networks"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// StaticMACBinding is a row of OVN_Northbound's Static_MAC_Binding.
type StaticMACBinding struct {
	UUID        string `ovsdb:"_uuid"`
	LogicalPort string `ovsdb:"logical_port"`
	IP          string `ovsdb:"ip"`
	MAC         string `ovsdb:"mac"`
	Override    bool   `ovsdb:"override_dynamic_mac"`
}

// MACBinding is a row of OVN_Southbound's MAC_Binding. Timestamp is in milliseconds since 1970.
type MACBinding struct {
	UUID        string `ovsdb:"_uuid"`
	LogicalPort string `ovsdb:"logical_port"`
	IP          string `ovsdb:"ip"`
	MAC         string `ovsdb:"mac"`
	Timestamp   int    `ovsdb:"timestamp"`
	Datapath    string `ovsdb:"datapath"`
}

// PortBinding is a row of OVN_Southbound's Port_Binding. TunnelKey is here only because libovsdb
// needs every column of the table's indexes.
type PortBinding struct {
	UUID        string `ovsdb:"_uuid"`
	LogicalPort string `ovsdb:"logical_port"`
	Type        string `ovsdb:"type"`
	Datapath    string `ovsdb:"datapath"`
	TunnelKey   int    `ovsdb:"tunnel_key"`
}

// models gives the tables of a database, by name. A fresh map: libovsdb keeps it.
func models(database string) map[string]model.Model {
	switch database {
	case OpenVSwitch:
		return map[string]model.Model{TableOpenVSwitch: &OVS{}, TableBridge: &Bridge{}, TablePort: &Port{}, TableInterface: &Interface{}}
	case Northbound:
		return map[string]model.Model{TableNBGlobal: &NBGlobal{}, TableRouter: &Router{}, TableRouterPort: &RouterPort{}, TableStaticMACBinding: &StaticMACBinding{}}
	case Southbound:
		return map[string]model.Model{TableMACBinding: &MACBinding{}, TablePortBinding: &PortBinding{}}
	}
	return nil
}

// columns lists the columns of a model. Monitors name them, else libovsdb asks for every column of
// the schema.
func columns(m model.Model) []string {
	t := reflect.TypeOf(m).Elem()
	out := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		if c := t.Field(i).Tag.Get(tagName); c != "" && c != columnUUID {
			out = append(out, c)
		}
	}
	return out
}

// libovsdb clones every row it stores and hands out. Its fallback goes through JSON, which is
// what a quarter of a million rows would spend their time in, so the models clone themselves.

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func equalPtr[T comparable](a, b *T) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

// CloneModel implements model.CloneableModel.
func (r *OVS) CloneModel() model.Model { c := new(OVS); r.CloneModelInto(c); return c }

// CloneModelInto implements model.CloneableModel.
func (r *OVS) CloneModelInto(m model.Model) {
	d := m.(*OVS)
	*d = *r
	d.ExternalIDs = maps.Clone(r.ExternalIDs)
}

// EqualsModel implements model.ComparableModel.
func (r *OVS) EqualsModel(m model.Model) bool {
	o, ok := m.(*OVS)
	return ok && r.UUID == o.UUID && maps.Equal(r.ExternalIDs, o.ExternalIDs)
}

// CloneModel implements model.CloneableModel.
func (r *Bridge) CloneModel() model.Model { c := new(Bridge); r.CloneModelInto(c); return c }

// CloneModelInto implements model.CloneableModel.
func (r *Bridge) CloneModelInto(m model.Model) {
	d := m.(*Bridge)
	*d = *r
	d.Ports = slices.Clone(r.Ports)
	d.OtherConfig = maps.Clone(r.OtherConfig)
	d.ExternalIDs = maps.Clone(r.ExternalIDs)
}

// EqualsModel implements model.ComparableModel.
func (r *Bridge) EqualsModel(m model.Model) bool {
	o, ok := m.(*Bridge)
	return ok && r.UUID == o.UUID && r.Name == o.Name && slices.Equal(r.Ports, o.Ports) &&
		maps.Equal(r.OtherConfig, o.OtherConfig) && maps.Equal(r.ExternalIDs, o.ExternalIDs)
}

// CloneModel implements model.CloneableModel.
func (r *Port) CloneModel() model.Model { c := new(Port); r.CloneModelInto(c); return c }

// CloneModelInto implements model.CloneableModel.
func (r *Port) CloneModelInto(m model.Model) {
	d := m.(*Port)
	*d = *r
	d.Interfaces = slices.Clone(r.Interfaces)
	d.Tag = clonePtr(r.Tag)
	d.ExternalIDs = maps.Clone(r.ExternalIDs)
}

// EqualsModel implements model.ComparableModel.
func (r *Port) EqualsModel(m model.Model) bool {
	o, ok := m.(*Port)
	return ok && r.UUID == o.UUID && r.Name == o.Name && slices.Equal(r.Interfaces, o.Interfaces) &&
		equalPtr(r.Tag, o.Tag) && maps.Equal(r.ExternalIDs, o.ExternalIDs)
}

// CloneModel implements model.CloneableModel.
func (r *Interface) CloneModel() model.Model { c := new(Interface); r.CloneModelInto(c); return c }

// CloneModelInto implements model.CloneableModel.
func (r *Interface) CloneModelInto(m model.Model) {
	d := m.(*Interface)
	*d = *r
	d.OFPort = clonePtr(r.OFPort)
	d.MACInUse = clonePtr(r.MACInUse)
	d.Options = maps.Clone(r.Options)
}

// EqualsModel implements model.ComparableModel.
func (r *Interface) EqualsModel(m model.Model) bool {
	o, ok := m.(*Interface)
	return ok && r.UUID == o.UUID && r.Name == o.Name && r.Type == o.Type &&
		equalPtr(r.OFPort, o.OFPort) && equalPtr(r.MACInUse, o.MACInUse) && maps.Equal(r.Options, o.Options)
}

// CloneModel implements model.CloneableModel.
func (r *StaticMACBinding) CloneModel() model.Model { c := *r; return &c }

// CloneModelInto implements model.CloneableModel.
func (r *StaticMACBinding) CloneModelInto(m model.Model) { *m.(*StaticMACBinding) = *r }

// EqualsModel implements model.ComparableModel.
func (r *StaticMACBinding) EqualsModel(m model.Model) bool {
	o, ok := m.(*StaticMACBinding)
	return ok && *r == *o
}

// CloneModel implements model.CloneableModel.
func (r *MACBinding) CloneModel() model.Model { c := *r; return &c }

// CloneModelInto implements model.CloneableModel.
func (r *MACBinding) CloneModelInto(m model.Model) { *m.(*MACBinding) = *r }

// EqualsModel implements model.ComparableModel.
func (r *MACBinding) EqualsModel(m model.Model) bool {
	o, ok := m.(*MACBinding)
	return ok && *r == *o
}

// CloneModel implements model.CloneableModel.
func (r *PortBinding) CloneModel() model.Model { c := *r; return &c }

// CloneModelInto implements model.CloneableModel.
func (r *PortBinding) CloneModelInto(m model.Model) { *m.(*PortBinding) = *r }

// EqualsModel implements model.ComparableModel.
func (r *PortBinding) EqualsModel(m model.Model) bool {
	o, ok := m.(*PortBinding)
	return ok && *r == *o
}
