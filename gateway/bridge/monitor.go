package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"picot.dev/picot/gateway/flows"
)

// The switch's flow monitor: an OpenFlow 1.0 statistics request of Nicira's that stays open
// and is answered at every change of the table. Formats: nicira-ext.h, NXST_FLOW_MONITOR.
const (
	statsVendor     = 0xffff
	niciraID        = 0x2320
	nxstFlowMonitor = 2

	monitorAdd    = 1 << 1
	monitorDelete = 1 << 2
	monitorModify = 1 << 3
	monitorOwn    = 1 << 5

	portNone  = 0xffff
	allTables = 0xff

	updateAdded    = 0
	updateDeleted  = 1
	updateModified = 2

	vendorStatsLen = 16 // statistics type and flags, vendor, subtype, padding
	updateFullLen  = 24 // an update's fixed part
)

// update is one change of the flow table.
type update struct {
	event    uint16
	priority uint16
	table    uint8
	cookie   uint64
}

// steering reports whether it concerns the priority picot's steering flows have.
func (u update) steering() bool { return u.table == 0 && u.priority == flows.PrioritySteer }

// monitor asks the switch for every change from now on. The initial answer, which is empty,
// says that it is in force.
func (d *Driver) monitor(ctx context.Context) (*conn, error) {
	start, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	c, err := d.dial(start, of10)
	if err != nil {
		return nil, err
	}
	if err = c.send(msg10StatsRequest, monitorRequest()); err == nil {
		var m message
		if m, err = c.receive(); err == nil && m.typ != msg10StatsReply {
			err = fmt.Errorf("%w: %s", errNoMonitor, errorText(m.body))
		}
	}
	if err != nil {
		c.Close()
		return nil, d.wire("monitor flows", err)
	}
	return c, nil
}

var errNoMonitor = errors.New("the switch has no flow monitor")

// monitorRequest asks for all changes of all tables, the asker's own included, actions left out.
func monitorRequest() []byte {
	b := make([]byte, vendorStatsLen+16)
	binary.BigEndian.PutUint16(b, statsVendor)
	binary.BigEndian.PutUint32(b[4:], niciraID)
	binary.BigEndian.PutUint32(b[8:], nxstFlowMonitor)
	r := b[vendorStatsLen:]
	binary.BigEndian.PutUint32(r, 1) // the monitor's ID
	binary.BigEndian.PutUint16(r[4:], monitorAdd|monitorDelete|monitorModify|monitorOwn)
	binary.BigEndian.PutUint16(r[6:], portNone)
	r[10] = allTables
	return b
}

// parseUpdates reads the updates of a flow monitor reply. An abbreviated or malformed update
// is returned as a change of nothing in particular: the caller looks at everything then.
func parseUpdates(body []byte) []update {
	if len(body) < vendorStatsLen {
		return nil
	}
	var out []update
	for b := body[vendorStatsLen:]; len(b) >= 4; {
		n := int(binary.BigEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return append(out, update{event: updateModified, table: allTables})
		}
		u := update{event: binary.BigEndian.Uint16(b[2:]), table: allTables}
		if u.event <= updateModified && n >= updateFullLen {
			u.priority = binary.BigEndian.Uint16(b[6:])
			u.table = b[14]
			u.cookie = binary.BigEndian.Uint64(b[16:])
		}
		out = append(out, u)
		b = b[n:]
	}
	return out
}
