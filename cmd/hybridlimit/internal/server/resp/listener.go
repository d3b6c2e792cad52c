package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
)

// accept serves connections, no more than Options.MaxConns at a time, until the listener is
// closed.
func (s *Server) accept(ln net.Listener) error {
	pause := firstPause
	for {
		raw, err := ln.Accept()
		switch {
		case err == nil:
			pause = firstPause
			if c := s.admit(raw); c != nil {
				s.serving.Go(c.serve)
			}
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			// Usually there are too many open files.
			s.o.Logger.Error("resp: cannot accept a connection", "error", err)
			select {
			case <-time.After(pause):
			case <-s.stop:
			}
			pause = min(2*pause, maxPause)
		}
	}
}

// admit makes a connection known to the server, or sends it away.
func (s *Server) admit(raw net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		_ = raw.Close()
		return nil
	case len(s.conns) >= s.o.MaxConns:
		s.count.turnedAway.Add(1)
		if s.o.TLS == nil { // else a handshake would be needed first
			_ = raw.SetWriteDeadline(time.Now().Add(firstPause))
			_, _ = raw.Write([]byte("-ERR max number of clients reached\r\n"))
		}
		_ = raw.Close()
		return nil
	}
	c := &conn{Conn: raw, server: s, in: parser{most: maxCommand}, session: session{protocol: 2}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if s.o.TLS != nil {
		c.Conn = tls.Server(raw, s.o.TLS)
	}
	s.conns[c] = struct{}{}
	return c
}

// forget removes a connection that is closed.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.drainedLocked()
}

// drainedLocked lets Stop return when the server stops and there are no connections.
func (s *Server) drainedLocked() {
	if s.stopping && len(s.conns) == 0 && !s.ended {
		s.ended = true
		close(s.drained)
	}
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}
