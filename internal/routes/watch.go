package routes

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Watch sends on changed whenever routes, rules, neighbours or links of the
// namespace may have changed (nil: the calling thread's). A signal says nothing but
// "look again", so signals merge (give the channel room for one) and a socket
// that overflowed is a signal too. relevant, if not nil, is asked about each
// changed neighbour from Watch's goroutine: on a busy node most are somebody
// else's. Watch subscribes, signals once, and returns when ctx ends or the socket
// breaks; after an error the caller starts it again.
func Watch(ctx context.Context, ns *netns.NsHandle, relevant func(NeighborKey) bool, changed chan<- struct{}) error {
	at := netns.None()
	if ns != nil {
		at = *ns
	}
	s, err := nl.SubscribeAt(at, netns.None(), unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return fmt.Errorf("subscribe to routing changes: %w", err)
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, s.Close) // ends Receive
	defer stop()

	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	signal()
	for {
		msgs, _, err := s.Receive()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == unix.ENOBUFS {
			signal()
			continue
		}
		if err != nil {
			return fmt.Errorf("receive routing changes: %w", err)
		}
		for _, m := range msgs {
			if concerns(m.Header.Type, m.Data, relevant) {
				signal()
				break
			}
		}
	}
}

func concerns(kind uint16, body []byte, relevant func(NeighborKey) bool) bool {
	if kind != unix.RTM_NEWNEIGH && kind != unix.RTM_DELNEIGH {
		return true
	}
	n, ok := parseNeighbor(body)
	return ok && (relevant == nil || relevant(n.NeighborKey))
}
