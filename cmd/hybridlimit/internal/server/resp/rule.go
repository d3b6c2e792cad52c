package resp

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/limit"
)

var quantity = field{"quantity", 0, limit.MaxUnits}

// take is HL.TAKE rule key [quantity]: units of a key under a rule of the rules file.
func (s *Server) take(c *conn, args [][]byte) {
	n := int64(1)
	if len(args) > 2 {
		if problem := number(args[2], quantity, &n); problem != "" {
			s.fail(c, problem)
			return
		}
	}
	s.ask(c, args, func(key string, rule *limit.Rule) limit.Result { return s.decide(key, rule, n) })
}

// peek is HL.PEEK rule key: what HL.TAKE of one unit would answer.
func (s *Server) peek(c *conn, args [][]byte) {
	s.ask(c, args, func(key string, rule *limit.Rule) limit.Result {
		s.o.Look(key, rule)
		return s.o.Limiter.Peek(key, rule)
	})
}

// ask answers for the rule and the key that args begin with.
func (s *Server) ask(c *conn, args [][]byte, decide func(string, *limit.Rule) limit.Result) {
	key := string(args[1])
	switch rule := s.o.Rules().For(string(args[0]), key); rule {
	case nil:
		s.fail(c, fmt.Sprintf("ERR there is no rule '%s' in the rules file", clip(args[0])))
	case limit.Unlimited():
		five(c, 0, -1, -1, -1, 0)
	default:
		s.answer(c, decide(key, rule))
	}
}
