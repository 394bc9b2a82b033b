package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Messages of a takeover: four bytes of length, then gob; descriptors follow in
// messages of one byte each, since one takes 253 at the most (SCM_MAX_FD,
// net/core/scm.c).

const (
	maxWireMessage = 64 << 20
	fdsAtOnce      = 250
)

func sendMessage(c *net.UnixConn, v any) error {
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	_, err := c.Write(b.Bytes())
	return err
}

func receiveMessage(c *net.UnixConn, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxWireMessage {
		return fmt.Errorf("message of %d bytes", n)
	}
	var body bytes.Buffer // grows with what comes, not with what is announced
	if _, err := io.CopyN(&body, c, int64(n)); err != nil {
		return err
	}
	return gob.NewDecoder(&body).Decode(v)
}

func sendFDs(c *net.UnixConn, fds []int) error {
	for len(fds) > 0 {
		n := min(len(fds), fdsAtOnce)
		if _, _, err := c.WriteMsgUnix([]byte{byte(n)}, unix.UnixRights(fds[:n]...), nil); err != nil {
			return err
		}
		fds = fds[n:]
	}
	return nil
}

// receiveFDs takes want descriptors; on an error none stays open.
func receiveFDs(c *net.UnixConn, want int) (fds []int, err error) {
	defer func() {
		if err != nil {
			_ = closeFDs(fds)
			fds = nil
		}
	}()
	for len(fds) < want {
		var one [1]byte
		oob := make([]byte, unix.CmsgSpace(4*fdsAtOnce))
		n, oobn, flags, _, err := c.ReadMsgUnix(one[:], oob)
		if err != nil {
			return fds, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return fds, err
		}
		for _, m := range messages {
			got, err := unix.ParseUnixRights(&m)
			if err != nil {
				return fds, err
			}
			fds = append(fds, got...)
		}
		if n != 1 || flags&unix.MSG_CTRUNC != 0 {
			return fds, errors.New("descriptors cut off")
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds, nil
}
