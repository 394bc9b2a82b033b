package fastpath

// PortSockets are the descriptors of a port's sockets, by queue. Control
// goroutine; they stay the Engine's.
func (e *Engine) PortSockets(port int) map[int]int { return e.descriptors(port, -1) }

// UplinkSockets are those of an uplink.
func (e *Engine) UplinkSockets(uplink int) map[int]int {
	return e.descriptors(e.firstUplinkRow()+uplink, uplink)
}

func (e *Engine) descriptors(port, uplink int) map[int]int {
	fds := map[int]int{}
	for _, s := range e.slots {
		if s != nil && s.sock.port == port && s.sock.uplink == uplink {
			fds[s.sock.queue] = s.sock.xs.FD()
		}
	}
	return fds
}
