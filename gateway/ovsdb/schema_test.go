package ovsdb

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/mapper"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"picot.dev/picot/gateway/ovsdb/ovsdbtest"
)

// The hand-kept models fit the schemas installed here: every table and column exists with that
// type, and every column of an index is in the model (libovsdb needs them).
func TestModelsFitInstalledSchemas(t *testing.T) {
	for database, file := range map[string]string{OpenVSwitch: ovsdbtest.OVS, Northbound: ovsdbtest.NB, Southbound: ovsdbtest.SB} {
		t.Run(database, func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v: scripts/install-deps installs it", err)
			}
			var schema ovsdb.DatabaseSchema
			if err := json.Unmarshal(b, &schema); err != nil {
				t.Fatal(err)
			}
			client, err := model.NewClientDBModel(database, models(database))
			if err != nil {
				t.Fatal(err)
			}
			if _, errs := model.NewDatabaseModel(schema, client); len(errs) > 0 {
				t.Fatal(errs)
			}
			for name, row := range models(database) {
				table := schema.Table(name)
				info, err := mapper.NewInfo(name, table, row)
				if err != nil {
					t.Fatal(err)
				}
				cols := columns(row)
				for _, c := range cols {
					if _, err := info.FieldByColumn(c); err != nil {
						t.Errorf("%s.%s: %v", name, c, err)
					}
				}
				for _, index := range table.Indexes {
					for _, c := range index {
						if !slices.Contains(cols, c) {
							t.Errorf("%s: index column %s is not in the model", name, c)
						}
					}
				}
			}
		})
	}
}

// A clone shares nothing with its row, so a cached row is never changed by its reader.
func TestClonesShareNothing(t *testing.T) {
	n := 7
	mac := "02:00:00:00:00:01"
	for _, row := range []model.Model{
		&OVS{UUID: "a", ExternalIDs: map[string]string{"k": "v"}},
		&Bridge{UUID: "a", Name: "b", Ports: []string{"p"}, OtherConfig: map[string]string{"k": "v"}, ExternalIDs: map[string]string{"k": "v"}},
		&Port{UUID: "a", Name: "p", Interfaces: []string{"i"}, Tag: &n, ExternalIDs: map[string]string{"k": "v"}},
		&Interface{UUID: "a", Name: "i", OFPort: &n, MACInUse: &mac, Options: map[string]string{"k": "v"}},
		&StaticMACBinding{UUID: "a", LogicalPort: "p", IP: "10.0.0.1", MAC: mac, Override: true},
		&MACBinding{UUID: "a", LogicalPort: "p", IP: "10.0.0.1", MAC: mac, Timestamp: 5, Datapath: "d"},
		&PortBinding{UUID: "a", LogicalPort: "p", Type: "l3gateway", Datapath: "d", TunnelKey: 3},
	} {
		c := model.Clone(row)
		if !reflect.DeepEqual(row, c) || !model.Equal(row, c) {
			t.Errorf("clone of %T differs", row)
		}
		v, w := reflect.ValueOf(row).Elem(), reflect.ValueOf(c).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Map, reflect.Slice, reflect.Pointer:
				if f.Pointer() == w.Field(i).Pointer() {
					t.Errorf("%T.%s is shared", row, v.Type().Field(i).Name)
				}
			case reflect.String:
				// every string field matters to Equal
				old := w.Field(i).String()
				w.Field(i).SetString(old + "x")
				if model.Equal(row, c) && v.Type().Field(i).Name != "Type" {
					t.Errorf("%T: Equal does not see %s", row, v.Type().Field(i).Name)
				}
				w.Field(i).SetString(old)
			}
		}
	}
}
