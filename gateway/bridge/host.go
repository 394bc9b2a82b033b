package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"picot.dev/picot/gateway/flows"
)

// SetHost says where the bridge MAC lives; nil, which it is at first, leaves that to the
// bridge's other owner. Routers and host share one MAC, so the switch would learn it on
// whichever port spoke last and NORMAL would follow; a static entry in its MAC table does not
// move. The next Apply, and every check of Watch, see to it.
func (d *Driver) SetHost(h *flows.HostEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host = h
}

// bindHost adds the static entry unless it is there. d.mu is held.
func (d *Driver) bindHost(ctx context.Context) (changed bool, err error) {
	if d.host == nil {
		return false, nil
	}
	table, err := d.control(ctx, "fdb/show", d.opt.Bridge)
	if err != nil {
		return false, err
	}
	vlan, mac := strconv.Itoa(int(d.host.VLAN)), d.host.MAC.String()
	port := "LOCAL"
	if d.host.OFPort != flows.PortLocal {
		port = strconv.Itoa(int(d.host.OFPort))
	}
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == port && f[1] == vlan && f[2] == mac && f[3] == "static" {
			return false, nil
		}
	}
	_, err = d.control(ctx, "fdb/add", d.opt.Bridge, d.host.Name, vlan, mac)
	return err == nil, err
}

// control runs a command of ovs-vswitchd's control socket (ovs-appctl(8)): one JSON-RPC request.
func (d *Driver) control(ctx context.Context, method string, params ...string) (string, error) {
	path := d.opt.Control
	if path == "" {
		path = controlSocket(filepath.Dir(d.opt.Socket))
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return "", d.wire(method, err)
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return "", d.wire(method, err)
		}
	}
	var reply struct {
		Result string `json:"result"`
		Error  any    `json:"error"`
	}
	request := map[string]any{"id": 0, "method": method, "params": params}
	if err := errors.Join(json.NewEncoder(c).Encode(request), json.NewDecoder(c).Decode(&reply)); err != nil {
		return "", d.wire(method, err)
	}
	if reply.Error != nil {
		return "", fmt.Errorf("bridge %s: %s: %w: %s", d.opt.Bridge, method, ErrRejected, strings.TrimSpace(fmt.Sprint(reply.Error)))
	}
	return reply.Result, nil
}

// controlSocket finds the control socket of the ovs-vswitchd that runs in dir; its name holds
// the process's number, which the pidfile tells.
func controlSocket(dir string) string {
	if pid, err := os.ReadFile(filepath.Join(dir, "ovs-vswitchd.pid")); err == nil {
		path := filepath.Join(dir, "ovs-vswitchd."+strings.TrimSpace(string(pid))+".ctl")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(dir, "ovs-vswitchd.ctl")
}
