package redisstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// defaultReplyBytes is the bound of [BoundReplies] if none is given.
const defaultReplyBytes = 64 << 20

// mostReplyBytes bounds the bound: go-redis needs stack for each level of nested arrays, and the
// runtime ends a process whose stack takes 1 GB, or 250 MB where an int has 32 bits.
const mostReplyBytes = 128 << 20

// BoundReplies returns a dialer whose connections fail, with [ErrBadReply], as
// soon as the server announces or sends a reply that would take more than most
// bytes of memory: at most 128 MiB, 0 means 64 MiB, which is more than any reply to
// the scripts.
//
// go-redis allocates as much memory as a header announces, before any of it has
// arrived, and recurses into nested arrays without a bound. A dozen bytes from a
// server at Redis' address are enough to end the process: running out of memory or
// of stack cannot be recovered from, and the goroutines in which a ClusterClient
// runs its pipelines do not recover from panics. The bound costs about 1 ns per byte of a
// reply's headers and nothing else, and applies to all replies that the client reads.
func BoundReplies(dial func(ctx context.Context, network, addr string) (net.Conn, error), most int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if most <= 0 {
		most = defaultReplyBytes
	}
	most = min(most, mostReplyBytes)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		bounded := &boundConn{Conn: conn, meter: meter{most: int64(most), left: int64(most)}}
		if raw, ok := conn.(syscall.Conn); ok {
			return rawBoundConn{bounded, raw}, nil
		}
		return bounded, nil
	}
}

// Dialer returns the dialer that go-redis uses by default, with the bound of [BoundReplies]. of returns the
// settings of the client when a connection is made, so that TLS may be set after the dialer.
func Dialer(of func() (time.Duration, *tls.Config)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return BoundReplies(func(ctx context.Context, network, addr string) (net.Conn, error) {
		timeout, secure := of()
		return redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: secure})(ctx, network, addr)
	}, 0)
}

// boundConn checks what it reads before it returns it.
type boundConn struct {
	net.Conn
	meter meter
	err   error
}

func (c *boundConn) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	if c.err = c.meter.read(p[:n]); c.err != nil {
		c.Close()
		return 0, c.err
	}
	return n, err
}

// rawBoundConn gives go-redis the socket, which it needs to recognise connections
// that the server has closed.
type rawBoundConn struct {
	*boundConn
	raw syscall.Conn
}

func (c rawBoundConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

const (
	// itemBytes is the memory that an element takes, besides its contents.
	itemBytes = 32
	// levelBytes is the memory that an aggregate takes, be it empty: go-redis recurses for
	// each that is in another one, and for each of several attributes in a row.
	levelBytes = 512
	// maxHeader is more bytes than the header of any valid length has.
	maxHeader = 24
)

// meter parses the replies of a server (RESP 2 and 3) and adds up the memory that
// each of them takes in its reader.
type meter struct {
	most, left int64 // allowed for one reply, and left of it
	skip       int64 // bytes of a string that are still to come
	head       [maxHeader]byte
	size       int   // of head; a longer line is no header
	rest       int64 // values of this reply that are still to come after the present one
}

func (m *meter) read(p []byte) error {
	for len(p) > 0 {
		if m.skip > 0 {
			n := min(m.skip, int64(len(p)))
			p, m.skip = p[n:], m.skip-n
			if m.skip == 0 {
				m.complete()
			}
			continue
		}
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		m.size += copy(m.head[m.size:], line)
		if err := m.spend(int64(len(line)), 1); err != nil {
			return err
		}
		if p = rest; !ended {
			return nil
		}
		if err := m.line(); err != nil {
			return err
		}
		m.size = 0
	}
	return nil
}

// spend counts n units of the given size in bytes.
func (m *meter) spend(n, unit int64) error {
	if n > m.left/unit {
		return fmt.Errorf("%w: more than %d bytes", ErrBadReply, m.most)
	}
	m.left -= n * unit
	return nil
}

// line handles a line that has arrived, the first bytes of which are in head.
func (m *meter) line() error {
	head := bytes.TrimSuffix(m.head[:m.size], []byte{'\r'})
	if len(head) == 0 {
		return fmt.Errorf("%w: an empty line", ErrBadReply)
	}
	values := int64(1) // of an entry
	switch head[0] {
	case '$', '!', '=':
		n, err := m.length(head, 1)
		if err != nil {
			return err
		}
		if n >= 0 {
			m.skip = n + int64(len("\r\n"))
			return nil
		}
	case '%', '|':
		values = 2
		fallthrough
	case '*', '~', '>':
		n, err := m.length(head, values*itemBytes)
		if err == nil {
			err = m.spend(1, levelBytes)
		}
		if err != nil {
			return err
		}
		m.rest += max(n, 0) * values
		if head[0] == '|' { // it precedes a value, and is not one itself
			return nil
		}
	}
	m.complete()
	return nil
}

// length returns the length in a header, negative for a nil, and spends that many
// units of the given size in bytes.
func (m *meter) length(head []byte, unit int64) (int64, error) {
	n, err := strconv.ParseInt(string(head[1:]), 10, 64)
	if err != nil || m.size == maxHeader {
		return 0, fmt.Errorf("%w: length %q", ErrBadReply, head[1:])
	}
	return n, m.spend(max(n, 0), unit)
}

// complete ends a value, or the header of an aggregate. After a complete reply the next one
// may take the full bound.
func (m *meter) complete() {
	if m.rest > 0 {
		m.rest--
		return
	}
	m.left = m.most
}
