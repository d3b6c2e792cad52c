package resp

import "fmt"

// maxQueue bounds the bytes of a transaction that are kept until EXEC: some 3,000 CL.THROTTLE.
const maxQueue = 256 << 10

// transaction is what a client has sent since MULTI. As in Redis nothing of it happens before
// EXEC, and nothing at all if a command could not be queued.
type transaction struct {
	open   bool
	broken bool // EXEC will fail
	count  int
	queue  []byte // the commands as they were sent, in the encoding of libraries
}

// add queues a command. It returns why that is not possible, empty if it is.
func (t *transaction) add(args [][]byte) (problem string) {
	if t.broken {
		return "" // Redis says QUEUED, too, and keeps nothing
	}
	t.count++
	t.queue = fmt.Appendf(t.queue, "*%d\r\n", len(args))
	for _, a := range args {
		t.queue = fmt.Appendf(t.queue, "$%d\r\n", len(a))
		t.queue = append(append(t.queue, a...), "\r\n"...)
	}
	if len(t.queue) > maxQueue {
		return fmt.Sprintf("ERR a transaction of more than %d bytes", maxQueue)
	}
	return ""
}

// fail makes EXEC fail. The commands are not needed any more.
func (t *transaction) fail() {
	if t.open {
		t.broken, t.queue = true, nil
	}
}

func (s *Server) multi(c *conn, _ [][]byte) {
	if c.tx.open {
		s.fail(c, "ERR MULTI calls can not be nested")
		return
	}
	c.tx.open = true
	c.simple("OK")
}

// exec is EXEC: the answers of all commands, in order. Other clients may be served meanwhile.
func (s *Server) exec(c *conn, _ [][]byte) {
	tx := c.tx
	c.tx = transaction{}
	switch {
	case !tx.open:
		s.fail(c, "ERR EXEC without MULTI")
		return
	case tx.broken:
		s.fail(c, "EXECABORT Transaction discarded because of previous errors.")
		return
	}
	c.array(tx.count)
	queued := parser{buf: tx.queue, most: len(tx.queue)}
	for range tx.count {
		args, _ := queued.next() // no error: add has written what is read here
		s.serve(c, args)
		c.flushIfLarge()
	}
}

func (s *Server) discard(c *conn, _ [][]byte) {
	if !c.tx.open {
		s.fail(c, "ERR DISCARD without MULTI")
		return
	}
	c.tx = transaction{}
	c.simple("OK")
}

// watch is WATCH, which would make EXEC depend on keys. Limits are no keys that it could watch.
func (s *Server) watch(c *conn, _ [][]byte) {
	if c.tx.open {
		s.fail(c, "ERR WATCH inside MULTI is not allowed")
		return
	}
	s.fail(c, "ERR WATCH is not supported: limits are not keys that can be watched")
}

func (s *Server) unwatch(c *conn, _ [][]byte) { c.simple("OK") }
