package devicetest

import (
	"fmt"
	"maps"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/device"
)

// sockets are those of one port or uplink.
type sockets struct {
	device string
	fds    map[int]int // by queue
}

// Place implements device.Sockets.
func (k *Kernel) Place() (fastpath.Place, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fastpath.Place{}, k.try("place")
}

// OpenPort implements device.Sockets.
func (k *Kernel) OpenPort(port, queue, ifindex int, _ fastpath.Place) (int, error) {
	return k.open(k.ports, port, queue, ifindex)
}

// OpenUplink implements device.Sockets.
func (k *Kernel) OpenUplink(uplink, queue, ifindex int) (int, error) {
	return k.open(k.uplinks, uplink, queue, ifindex)
}

func (k *Kernel) open(all map[int]*sockets, number, queue, ifindex int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := k.find(ifindex)
	if err != nil {
		return -1, err
	}
	if queue >= d.queues {
		return -1, device.ErrNoQueue
	}
	if s := all[number]; s != nil {
		if _, busy := s.fds[queue]; busy {
			return -1, fmt.Errorf("open %s/%d: busy", d.name, queue)
		}
	}
	fd := -1
	err = k.mutate(fmt.Sprintf("open %s/%d", d.name, queue), func() {
		if all[number] == nil {
			all[number] = &sockets{device: d.name, fds: map[int]int{}}
		}
		k.lastID++
		fd = int(k.lastID)
		all[number].fds[queue] = fd
	})
	return fd, err
}

// PortSockets implements device.Sockets.
func (k *Kernel) PortSockets(port int) map[int]int { return k.of(k.ports, port) }

// UplinkSockets implements device.Sockets.
func (k *Kernel) UplinkSockets(uplink int) map[int]int { return k.of(k.uplinks, uplink) }

func (k *Kernel) of(all map[int]*sockets, number int) map[int]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := all[number]; s != nil {
		return maps.Clone(s.fds)
	}
	return map[int]int{}
}

// ClosePort implements device.Sockets.
func (k *Kernel) ClosePort(port int) error { return k.close(k.ports, port) }

// CloseUplink implements device.Sockets.
func (k *Kernel) CloseUplink(uplink int) error { return k.close(k.uplinks, uplink) }

func (k *Kernel) close(all map[int]*sockets, number int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := all[number]
	if s == nil {
		return nil
	}
	return k.mutate("close "+s.device, func() {
		delete(all, number)
		k.empty(s)
	})
}

// empty does what the kernel does when sockets are closed.
func (k *Kernel) empty(s *sockets) {
	for _, fd := range s.fds {
		for l := range k.links() {
			for q, in := range l.slots {
				if in == fd {
					delete(l.slots, q)
				}
			}
		}
	}
}

// UseQueues implements device.Sockets.
func (k *Kernel) UseQueues(int, int) {}

func (k *Kernel) isSocket(fd int) bool {
	for _, all := range []map[int]*sockets{k.ports, k.uplinks} {
		for _, s := range all {
			for _, is := range s.fds {
				if is == fd {
					return true
				}
			}
		}
	}
	return false
}
