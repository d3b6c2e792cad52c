package remote

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// defaultReplyBytes is what [BoundReplies] lets one reply take if nothing else is said.
const defaultReplyBytes = 64 << 20

// BoundReplies returns a dialer whose connections fail, with [ErrBadReply], as
// soon as the server announces or sends a reply that would take more than most
// bytes of memory; 0 means 64 MiB, more than
// any script of this package answers.
//
// go-redis sets memory aside for as much as a header announces, before any of
// it has arrived, and descends into nested arrays as deep as they go. A dozen
// bytes from whoever answers at Redis' address are enough to end the process:
// running out of memory or of stack cannot be recovered from, and the goroutines
// in which a ClusterClient runs its pipelines recover from nothing. Where the
// server, or the way to it, is not trusted as much as the process itself, build
// the client with
//
//	o.Dialer = remote.BoundReplies(redis.NewDialer(o), 0)
//
// It costs about 1 ns per byte of a reply's headers and nothing else. The bound
// holds for everything that this client is used for.
func BoundReplies(dial func(ctx context.Context, network, addr string) (net.Conn, error), most int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if most <= 0 {
		most = defaultReplyBytes
	}
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

// boundConn looks at what is read before its reader does.
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

// rawBoundConn shows go-redis the socket, by which it recognises connections
// that the server has closed.
type rawBoundConn struct {
	*boundConn
	raw syscall.Conn
}

func (c rawBoundConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

const (
	// itemBytes is what an element costs whoever keeps it, beside its contents.
	itemBytes = 32
	// attrBytes is what an attribute costs: go-redis calls itself for each of
	// a row of them.
	attrBytes = 512
	// maxNesting is how deep replies may nest. Ours are flat, and those to
	// go-redis' own questions (CLUSTER SLOTS, COMMAND) a few levels deep.
	maxNesting = 16
	// maxHeader is more than the digits of any length.
	maxHeader = 24
)

// meter walks over the replies of a server (RESP 2 and 3) and adds up what each
// of them makes its reader keep.
type meter struct {
	most, left int64 // allowed for one reply, and left of it
	skip       int64 // bytes of a string that are still to come
	head       [maxHeader]byte
	size       int // of head; a longer line is no header
	open       [maxNesting]aggregate
	depth      int
}

// aggregate is an array, map, set, push or attribute that is not complete.
type aggregate struct {
	left int64 // elements still to come
	attr bool  // an attribute precedes a value, and is none
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
		if err := m.spend(int64(len(line))); err != nil {
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

func (m *meter) spend(n int64) error {
	if n < 0 || n > m.left {
		return fmt.Errorf("%w: more than %d bytes", ErrBadReply, m.most)
	}
	m.left -= n
	return nil
}

// line handles a line that has arrived, the first bytes of which are in head.
func (m *meter) line() error {
	head := bytes.TrimSuffix(m.head[:m.size], []byte{'\r'})
	if len(head) == 0 {
		return fmt.Errorf("%w: an empty line", ErrBadReply)
	}
	switch head[0] {
	case '$', '!', '=':
		n, err := m.length(head, 1)
		if err != nil || n < 0 {
			m.complete()
			return err
		}
		m.skip = n + int64(len("\r\n"))
	case '*', '~', '>':
		return m.enter(head, 1)
	case '|':
		if err := m.spend(attrBytes); err != nil {
			return err
		}
		return m.enter(head, 2)
	case '%':
		return m.enter(head, 2)
	default:
		m.complete()
	}
	return nil
}

// length returns the length in a header and pays for that many units of the
// given size. It is negative for a nil.
func (m *meter) length(head []byte, unit int64) (int64, error) {
	n, err := strconv.ParseInt(string(head[1:]), 10, 64)
	if err != nil || m.size == maxHeader {
		return 0, fmt.Errorf("%w: length %q", ErrBadReply, head[1:])
	}
	if n < 0 {
		return n, nil
	}
	if n > m.left/unit {
		return 0, m.spend(m.left + 1)
	}
	return n, m.spend(n * unit)
}

// enter begins an aggregate with so many values per entry.
func (m *meter) enter(head []byte, values int64) error {
	n, err := m.length(head, values*itemBytes)
	switch {
	case err != nil:
		return err
	case n <= 0 && head[0] == '|':
		return nil
	case n <= 0:
		m.complete()
		return nil
	case m.depth == maxNesting:
		return fmt.Errorf("%w: nested more than %d levels deep", ErrBadReply, maxNesting)
	}
	m.open[m.depth] = aggregate{left: n * values, attr: head[0] == '|'}
	m.depth++
	return nil
}

// complete ends a value, and with it what it is the last element of. A reply
// that is complete makes room for the next.
func (m *meter) complete() {
	for m.depth > 0 {
		top := &m.open[m.depth-1]
		if top.left--; top.left > 0 {
			return
		}
		m.depth--
		if top.attr {
			return
		}
	}
	m.left = m.most
}
