package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// bufSize is the buffer of each direction: large enough to keep most pipelines
// whole.
const bufSize = 64 << 10

// Proxy is a wire between a client and a Redis server that can be made to
// fail. Build it with [NewProxy]; until told otherwise it passes everything on.
// It is safe for concurrent use.
//
// It works in exchanges: the commands that a client has written at once (one
// command, or a pipeline) and all their replies. An exchange that only sets up
// a connection (HELLO, AUTH, CLIENT, SELECT, PING, COMMAND, CLUSTER, READONLY)
// is never the one that CutReplies, DropRequests, Double and Tear hit, so that a test means
// its own commands whether or not the pool dials first. Subscriptions are not
// supported.
type Proxy struct {
	ln     net.Listener
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // protects what follows
	target   string
	conns    map[*link]struct{}
	refuse   bool
	hole     bool
	delay    time.Duration
	cut      int // exchanges whose replies are still to be lost
	drop     int // exchanges that are still to be lost on the way there
	cutDone  int
	dropDone int
	double   int // exchanges that are still to arrive twice
	doubled  int
	tears    []int // exchanges still to be torn, by the bytes that arrive
	torn     int
}

// NewProxy starts a proxy on a free loopback port in front of target, a
// "host:port". The caller must Close it.
func NewProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	p := &Proxy{ln: ln, target: target, conns: make(map[*link]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Addr returns the address that clients dial, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Close ends all connections and waits until nothing of the proxy runs.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.ln.Close()
	p.Cut()
	p.wg.Wait()
}

// Cut closes every connection there is. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked(func(*link) bool { return true })
}

func (p *Proxy) cutLocked(which func(*link) bool) {
	for l := range p.conns {
		if which(l) {
			l.close()
		}
	}
}

// SetTarget sends connections that are made from now on to another server.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// CutReplies loses the replies of the next n exchanges: Redis executes their
// commands and answers, then the client's connection is closed without a byte
// of the answer.
func (p *Proxy) CutReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = n
}

// DropRequests loses the next n exchanges on the way to Redis: the client's
// connection is closed and Redis never sees the commands. It goes before
// CutReplies.
func (p *Proxy) DropRequests(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = n
}

// Lost returns how many exchanges DropRequests and CutReplies have hit.
func (p *Proxy) Lost() (requests, replies int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropDone, p.cutDone
}

// Double lets the next n exchanges arrive twice: Redis executes their commands,
// then executes them again, and the client gets the second answer.
func (p *Proxy) Double(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.double = n
}

// Doubled returns how many exchanges Double has hit.
func (p *Proxy) Doubled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doubled
}

// Tear breaks the connection in the middle of the next exchanges, one for each
// number given: Redis sees only so many of their bytes (it executes what is
// complete) and the client gets no answer. A negative number tears the answer
// instead: Redis executes everything and the client gets so many bytes of it.
func (p *Proxy) Tear(after ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tears = after
}

// Torn returns how many exchanges Tear has hit.
func (p *Proxy) Torn() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.torn
}

// Conns returns how many clients are connected.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Refuse closes all connections, and new ones as soon as they are made, until
// it is called with false.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
	if on {
		p.cutLocked(func(*link) bool { return true })
	}
}

// BlackHole swallows what clients send, without an answer and without closing
// anything, until it is called with false. Connections that lost something
// are closed then: their replies would no longer match.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = on
	if !on {
		p.cutLocked(func(l *link) bool { return l.holed })
	}
}

// Delay holds every exchange back for d before Redis sees it; 0 ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return
		}
		if l := p.admit(conn); l != nil {
			go func() {
				defer p.wg.Done()
				l.run()
			}()
			continue
		}
		conn.Close()
	}
}

// admit registers a connection, or returns nil if there is to be none.
func (p *Proxy) admit(conn net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ctx.Err() != nil {
		return nil
	}
	l := &link{proxy: p, client: conn, target: p.target}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	p.conns[l] = struct{}{}
	p.wg.Add(1)
	return l
}

// verdict is what becomes of one exchange.
type verdict uint8

const (
	pass verdict = iota
	swallow
	dropRequest
	cutReply
	deliverTwice
	tear
)

// fate is what becomes of one exchange, and when.
type fate struct {
	verdict
	wait  time.Duration // it is held back for so long
	after int           // tear: see Tear
}

// judge decides about an exchange.
func (p *Proxy) judge(l *link, setup bool) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.hole:
		l.holed = true
		return fate{verdict: swallow}
	case setup:
	case p.drop > 0:
		p.drop--
		p.dropDone++
		return fate{dropRequest, p.delay, 0}
	case p.cut > 0:
		p.cut--
		p.cutDone++
		return fate{cutReply, p.delay, 0}
	case p.double > 0:
		p.double--
		p.doubled++
		return fate{deliverTwice, p.delay, 0}
	case len(p.tears) > 0:
		after := p.tears[0]
		p.tears = p.tears[1:]
		p.torn++
		return fate{tear, p.delay, after}
	}
	return fate{pass, p.delay, 0}
}

// link is one client's connection and the one to Redis behind it.
type link struct {
	proxy  *Proxy
	client net.Conn
	target string
	ctx    context.Context
	cancel context.CancelFunc
	holed  bool // lost something in a black hole; protected by proxy.mu
}

// close ends the link; run then returns. It does not wait.
func (l *link) close() {
	l.cancel()
	l.client.Close()
}

func (l *link) run() {
	defer func() {
		l.close()
		l.proxy.mu.Lock()
		delete(l.proxy.conns, l)
		l.proxy.mu.Unlock()
	}()
	q := newQueue()
	var wg sync.WaitGroup
	// A reader of its own: the client may write a long pipeline before it
	// reads the first reply, and must not block on us.
	wg.Go(func() {
		q.fill(bufio.NewReaderSize(l.client, bufSize))
		l.cancel()
	})
	l.exchange(q)
	l.close()
	wg.Wait()
}

// exchange passes exchanges on until one side ends or a fault does.
func (l *link) exchange(q *queue) {
	var server net.Conn
	var replies *bufio.Reader
	for {
		cmds, ok := q.take(l.ctx)
		if !ok {
			return
		}
		f := l.proxy.judge(l, cmds.setup)
		if f.verdict == swallow {
			continue
		}
		if !sleep(l.ctx, f.wait) || f.verdict == dropRequest {
			return
		}
		if server == nil {
			var err error
			if server, err = l.dial(); err != nil {
				return
			}
			defer server.Close()
			defer context.AfterFunc(l.ctx, func() { server.Close() })()
			replies = bufio.NewReaderSize(server, bufSize)
		}
		if f.verdict == tear && f.after >= 0 {
			deliverPart(server, replies, cmds.raw[:min(f.after, len(cmds.raw))])
			return
		}
		answer, err := ask(server, replies, cmds)
		if err == nil && f.verdict == deliverTwice {
			answer, err = ask(server, replies, cmds)
		}
		if err != nil || f.verdict == cutReply {
			return
		}
		if f.verdict == tear {
			answer = answer[:min(-f.after, len(answer))]
		}
		if _, err := l.client.Write(answer); err != nil || f.verdict == tear {
			return
		}
	}
}

func ask(server net.Conn, replies *bufio.Reader, cmds commands) ([]byte, error) {
	if _, err := server.Write(cmds.raw); err != nil {
		return nil, err
	}
	return readReplies(replies, cmds.count)
}

// deliverPart sends an exchange that breaks off, and waits until Redis has
// executed what is complete of it.
func deliverPart(server net.Conn, replies *bufio.Reader, raw []byte) {
	if _, err := server.Write(raw); err != nil {
		return
	}
	if tcp, ok := server.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		_, _ = replies.WriteTo(io.Discard) // until Redis closes
	}
}

func (l *link) dial() (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(l.ctx, "tcp", l.target)
}

// sleep waits for d and tells whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// commands is what a client has written and nobody has passed on yet.
type commands struct {
	raw   []byte
	count int
	setup bool // nothing but the setting up of a connection
}

// queue holds a client's commands between its reader and the exchanges.
type queue struct {
	mu    sync.Mutex
	next  commands
	ended bool
	ready chan struct{} // holds a token when there may be something new
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// fill reads commands until the client ends or makes no sense. Commands that
// arrived together are published together, so that a pipeline stays whole.
func (q *queue) fill(rd *bufio.Reader) {
	defer q.publish(commands{}, true)
	for {
		batch := commands{setup: true}
		for more := true; more; more = rd.Buffered() > 0 {
			start := len(batch.raw)
			name, err := readCommand(rd, &batch.raw)
			if err != nil {
				batch.raw = batch.raw[:start]
				if batch.count > 0 {
					q.publish(batch, err != io.EOF)
				}
				return
			}
			batch.count++
			batch.setup = batch.setup && isSetup(name)
		}
		q.publish(batch, false)
	}
}

func (q *queue) publish(c commands, end bool) {
	q.mu.Lock()
	if q.next.count == 0 {
		q.next = c
	} else if c.count > 0 {
		q.next.raw = append(q.next.raw, c.raw...)
		q.next.count += c.count
		q.next.setup = q.next.setup && c.setup
	}
	q.ended = q.ended || end
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns everything that is waiting, or false when there will be nothing.
func (q *queue) take(ctx context.Context) (commands, bool) {
	for {
		q.mu.Lock()
		c, ended := q.next, q.ended
		q.next = commands{}
		q.mu.Unlock()
		if c.count > 0 {
			return c, true
		}
		if ended {
			return c, false
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return c, false
		}
	}
}
