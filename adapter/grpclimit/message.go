package grpclimit

import (
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/limit"
)

// countMessages serves a stream whose messages are counted.
func (g *gate) countMessages(srv any, ss grpc.ServerStream, call Call, took claim, handler grpc.StreamHandler) error {
	if len(took.checks) == 0 {
		return handler(srv, ss)
	}
	m := &countedStream{ServerStream: ss, gate: g, call: call, key: took.checks[0].Key}
	err := handler(srv, m)
	if refused := m.refused.Load(); err == nil && refused != nil {
		return *refused // the caller must not believe that all of it was read
	}
	return err
}

// countedStream counts what is received. Like any stream it is for one receiver at a time.
type countedStream struct {
	grpc.ServerStream
	gate    *gate
	call    Call
	key     string
	refused atomic.Pointer[error] // set once; the handler may receive in another goroutine
}

// RecvMsg receives a message and counts it. After a refusal it receives nothing more.
func (s *countedStream) RecvMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return *refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := s.count(m); err != nil {
		s.refused.Store(&err)
		return err
	}
	return nil
}

func (s *countedStream) count(m any) error {
	g, n := s.gate, int64(1)
	if g.perMsg != nil {
		n = units(g.perMsg(s.Context(), m))
	}
	q := limit.Check{Key: s.key, Rule: g.message, N: n}
	res, err := g.lim.Take(s.Context(), q.Key, q.Rule, q.N)
	d := Decision{Call: s.call, Rule: q.Rule, Result: res, Err: g.refusal(s.Context(), q, res, err)}
	return g.conclude(s.Context(), d)
}
