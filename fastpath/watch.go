package fastpath

import "golang.org/x/sys/unix"

// Epoll finds idle sockets that have frames again. A socket it watches costs
// the kernel a wake-up call for every frame that was sent by it (sock_wfree,
// net/core/sock.c), about a tenth of sending it. So a socket that carries much
// is taken out, polled every round, and put back when it falls idle or the
// worker goes to sleep. Putting it back reports frames that came in between.

// hotFrames is how many frames a watched socket carries before it is taken
// out: the two calls this costs are then nothing beside them.
const hotFrames = 1024

// watch has epoll watch k and reports whether it does.
func (w *worker) watch(k *sock) bool {
	if k.watched {
		return true
	}
	fd := k.xs.FD()
	if fd < 0 {
		return false
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(k.slot)}
	if err := unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return false // it stays active
	}
	k.watched = true
	w.watching++
	k.carried = 0
	return true
}

// carried counts n frames of k, and stops the watching of a hot one.
func (w *worker) carried(k *sock, n int) {
	k.last = w.walk.Now
	k.carried += n
	if k.carried < hotFrames || !k.watched {
		return
	}
	if err := unix.EpollCtl(w.epfd, unix.EPOLL_CTL_DEL, k.xs.FD(), nil); err != nil {
		k.carried = 0
		return
	}
	k.watched = false
	w.watching--
	w.activate(k)
}
