package resp

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

var quantity = field{"quantity", 0, arith.MaxUnits}

// take is HL.TAKE rule key [quantity]: units of a key under a rule of the rules file.
func (s *Server) take(c *conn, args [][]byte) {
	n := int64(1)
	if len(args) > 2 {
		if problem := number(args[2], quantity, &n); problem != "" {
			s.fail(c, problem)
			return
		}
	}
	res, err := s.decider.Take(c.ctx, string(args[0]), string(args[1]), n)
	s.answerNamed(c, args[0], res, err)
}

var settled = field{"quantity", -arith.MaxUnits, arith.MaxUnits}

// charge is HL.CHARGE rule key quantity: counts units whether they fit or not, or gives them back if
// the quantity is negative. It is answered as HL.PEEK is afterwards.
func (s *Server) charge(c *conn, args [][]byte) {
	n := int64(0)
	if problem := number(args[2], settled, &n); problem != "" {
		s.fail(c, problem)
		return
	}
	res, err := s.decider.Charge(string(args[0]), string(args[1]), n)
	s.answerNamed(c, args[0], res, err)
}

// peek is HL.PEEK rule key: what HL.TAKE of one unit would answer.
func (s *Server) peek(c *conn, args [][]byte) {
	res, err := s.decider.Peek(string(args[0]), string(args[1]))
	s.answerNamed(c, args[0], res, err)
}

// answerNamed answers by a rule of that name. The errors are that there is none, that the key cannot be
// one of it, and that Redis was to decide and has not.
func (s *Server) answerNamed(c *conn, name []byte, res limit.Result, err error) {
	var undecided *byname.UndecidedError
	if errors.As(err, &undecided) {
		s.fail(c, "UNAVAILABLE "+undecided.Error())
		return
	}
	if errors.Is(err, byname.ErrNoKey) || errors.Is(err, rules.ErrNoAddress) {
		s.fail(c, "ERR "+err.Error())
		return
	}
	if err != nil {
		s.fail(c, fmt.Sprintf("ERR there is no rule '%s' in the rules file", clip(name)))
		return
	}
	s.answer(c, res)
}
