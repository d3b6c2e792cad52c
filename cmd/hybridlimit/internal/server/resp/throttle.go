package resp

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// maxRates is for how many combinations of max_burst, count and period a rule is kept.
// Further ones are built for each call: that takes a microsecond or two more.
const maxRates = 4096

// throttle is CL.THROTTLE key max_burst count period [quantity].
func (s *Server) throttle(c *conn, args [][]byte) {
	r := rate{}
	n := int64(1)
	into := []*int64{&r.burst, &r.count, &r.period, &n}
	for i, arg := range args[1:] {
		if text := number(arg, fields[i], into[i]); text != "" {
			s.fail(c, text)
			return
		}
	}
	rule, err := s.rates.rule(r)
	if len(args[0]) == 0 {
		err = byname.ErrNoKey
	}
	if err != nil {
		s.fail(c, "ERR "+err.Error())
		return
	}
	res, _ := s.decider.TakeBy(c.ctx, string(args[0]), rule, n) // such a rule is never exact: no error
	s.answer(c, res)
}

// field is a number that a command takes.
type field struct {
	name  string
	least int64
	most  int64
}

// fields are those of CL.THROTTLE, behind the key.
var fields = []field{
	{"max_burst", 0, arith.MaxUnits - 1},
	{"count", 1, arith.MaxUnits},
	{"period", 1, int64(arith.MaxWindow / time.Second)},
	{"quantity", 0, arith.MaxUnits},
}

// number reads a field. It returns what is wrong with it, empty if nothing is.
func number(arg []byte, f field, into *int64) (problem string) {
	v, err := strconv.ParseInt(string(arg), 10, 64)
	if err != nil || v < f.least || v > f.most {
		return fmt.Sprintf("ERR %s is '%s', must be an integer from %d to %d", f.name, clip(arg), f.least, f.most)
	}
	*into = v
	return ""
}

// rate is what CL.THROTTLE says of a limit.
type rate struct{ burst, count, period int64 }

// rates is the rules that were asked for with CL.THROTTLE.
type rates struct {
	mu    sync.RWMutex
	known map[rate]*limit.Rule
}

// rule returns the rule for a rate: the same pointer each time, for the first maxRates.
func (rs *rates) rule(r rate) (*limit.Rule, error) {
	rs.mu.RLock()
	rule := rs.known[r]
	rs.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	rule, err := r.build()
	if err != nil {
		return nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if first := rs.known[r]; first != nil {
		return first, nil
	}
	if len(rs.known) < maxRates {
		rs.known[r] = rule
	}
	return rule, nil
}

// build returns a token bucket of burst + 1. The name is of the rate alone, in lowest terms:
// who changes max_burst goes on with what was used, and 30 per 60 s is 1 per 2 s. Another rate
// counts by itself. Clients may ask for any number of rates, so that a few have figures of their own.
func (r rate) build() (*limit.Rule, error) {
	by := gcd(r.count, r.period)
	count, period := r.count/by, r.period/by
	name := fmt.Sprintf("CL.THROTTLE %d/%ds", count, period)
	rule, err := limit.TokenBucket(name, count, time.Duration(period)*time.Second, r.burst+1)
	if err == nil {
		arith.Of(rule).MadeUp = true
	}
	return rule, err
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// answer writes the five numbers of redis-cell: limited or not, limit, remaining, seconds
// until a retry makes sense or -1, seconds until nothing is counted any more.
func (s *Server) answer(c *conn, res limit.Result) {
	if res.Source == limit.SourceInvalid {
		s.fail(c, "ERR this server cannot decide by such a rule")
		return
	}
	limited := int64(0)
	retry := int64(-1)
	if !res.Allowed {
		s.count.refused.Add(1)
		limited = 1
		if n, ok := res.RetryAfterSeconds(); ok {
			retry = int64(n)
		}
	}
	five(c, limited, res.Limit, res.Remaining, retry, resetSeconds(res.ResetAfter))
}

func five(c *conn, numbers ...int64) {
	c.array(len(numbers))
	for _, n := range numbers {
		c.integer(n)
	}
}

// resetSeconds rounds up, but for less than a millisecond, as redis-cell does.
func resetSeconds(d time.Duration) int64 {
	return int64((d + time.Second - time.Millisecond) / time.Second)
}
