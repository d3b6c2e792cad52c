package redisstore

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeMode says what [Store.Take] does with the counters.
type TakeMode string

// The modes.
const (
	Look  TakeMode = "0" // nothing is written
	Book  TakeMode = "1" // all units are booked, if all fit
	Ahead TakeMode = "r" // Book of the only Ask, which is of a leaky bucket and whose caller waits
	Most  TakeMode = "m" // what is left is booked, up to the units of the only Ask

	LookState TakeMode = "0+" // Look, and the answers have the State of the counter; not for logs
	BookState TakeMode = "1+" // Book, likewise
)

// Ask asks a counter for units.
type Ask struct {
	Counter string        // from [Keyspace.CounterKey]
	Rule    *limit.Rule   // valid
	Units   int64         // that must fit, up to the rule's limit; with [Most] at least 1
	Own     int64         // of these, units to be booked for this question
	Ahead   time.Duration // a leaky bucket may book them up to this long before they fit
	Forced  bool          // a window counts them whether they fit or not
}

// Taken is the answer to several [Ask].
type Taken struct {
	Now     time.Duration // Redis' time since the Unix epoch, whole µs
	Booked  bool
	Answers []Answer
}

// Answer is the answer of one counter, with its content after the call: the fields of its
// algorithm are set.
type Answer struct {
	Units int64        // 0: they do not fit; with [Most] how many were booked
	State report.State // with [LookState] and [BookState]
	rule  *limit.Rule

	// Level is the time in which a leaky bucket will be empty.
	Level arith.Span
	// Of a window, in ascending order.
	buckets []report.Bucket
	current int64         // ID of the current bucket
	past    time.Duration // how much of that has passed
	// Of a log.
	count       int64
	wait, reset time.Duration
}

// Take asks several counters in one call. If a counter cannot be used, the error is a
// [*limit.KeyError], and by is the index of its Ask; otherwise by is -1.
func (s *Store) Take(ctx context.Context, mode TakeMode, asks ...Ask) (t Taken, by int, err error) {
	for range 2 {
		c := s.takeCall(mode, asks)
		s.do(ctx, c)
		if t, by, err = c.taken(mode, asks); !s.otherPeriod(err) {
			break
		}
	}
	return t, by, err
}

// Seen is what Redis has of one counter.
type Seen struct {
	// Err says why there is no result: an error of Take, so a [*limit.KeyError] for a counter that
	// cannot be used. Then the rest is zero.
	Err error
	// Result is the answer to a check for one unit.
	Result limit.Result
	// Used is how many units count, those above the limit included.
	Used int64
}

// LookAt reads many counters, each by a call of its own, in one pipeline. The asks are for one unit.
func (s *Store) LookAt(ctx context.Context, asks []Ask) []Seen {
	list, out := make([]TakeRequest, len(asks)), make([]Seen, len(asks))
	for i := range asks {
		list[i] = TakeRequest{Mode: Look, Asks: asks[i : i+1]}
	}
	s.TakeEach(ctx, list)
	for i := range list {
		if out[i].Err = list[i].Err; out[i].Err == nil {
			a := list[i].Taken.Answers[0]
			out[i].Result, out[i].Used = decision.Judged(asks[i].Rule, a.Result(1)), a.Used()
		}
	}
	return out
}

// TakeRequest is one of several calls of [Store.Take], and then its outcome.
type TakeRequest struct {
	Mode  TakeMode
	Asks  []Ask
	Taken Taken
	By    int
	Err   error
}

// TakeEach makes several calls of Take in one pipeline. They succeed or fail independently.
func (s *Store) TakeEach(ctx context.Context, list []TakeRequest) {
	calls := make([]*call, len(list))
	for i := range list {
		calls[i] = s.takeCall(list[i].Mode, list[i].Asks)
	}
	s.pipeline(ctx, calls)
	for i, c := range calls {
		q := &list[i]
		if q.Taken, q.By, q.Err = c.taken(q.Mode, q.Asks); s.otherPeriod(q.Err) {
			q.Taken, q.By, q.Err = s.Take(ctx, q.Mode, q.Asks...)
		}
	}
}

// takeCall builds the call of the script.
func (s *Store) takeCall(mode TakeMode, asks []Ask) *call {
	apart := mode[0] == Book[0] && slices.ContainsFunc(asks, func(q Ask) bool { return q.Own != q.Units || q.Rule.IsDryRun() })
	if apart {
		mode = "s" + mode[1:]
	}
	c := &call{keys: make([]string, len(asks)), args: append(make([]any, 0, 1+10*len(asks)), string(mode))}
	kinds := kindOf(asks[0].Rule)
	for i := range asks {
		q := &asks[i]
		kind, is := kindOf(q.Rule), arith.Of(q.Rule)
		if kinds != kind {
			kinds = ""
		}
		c.keys[i], c.args = q.Counter, append(c.args, kind)
		switch kind {
		case "f":
			c.args = append(c.args, rateText(q.Rule))
			c.span(q.Rule, is.Add(is.Full, arith.Span{NS: int64(q.Ahead)}))
			c.args = append(c.args, horizonMS(q.Rule))
			c.span(q.Rule, is.Cost(q.Units))
		case "w":
			most := q.Rule.Limit()
			if q.Forced {
				most = arith.MaxUnits
			}
			c.args = append(c.args, most, s.width(q.Rule), is.Kept, horizonMS(q.Rule), q.Units)
		case "l":
			c.args = append(c.args, q.Rule.Limit(), widthUS(q.Rule), q.Units)
		}
		switch {
		case mode == Ahead:
			c.span(q.Rule, is.Full)
		case mode == Most && kind == "f":
			for step := int64(1) << (bits.Len64(uint64(q.Units)) - 1); step > 0; step /= 2 {
				c.span(q.Rule, is.Cost(step))
			}
			c.args = append(c.args, q.Units)
		case apart && kind == "f":
			c.args = append(c.args, q.Rule.IsDryRun())
			c.span(q.Rule, is.Cost(q.Own))
		case apart:
			c.args = append(c.args, q.Rule.IsDryRun(), q.Own, 0)
		}
	}
	c.script = scriptTake[kinds]
	return c
}

// span appends a span of a leaky bucket.
func (c *call) span(rule *limit.Rule, s arith.Span) {
	w := toWire(rule, s)
	c.args = append(c.args, w.us, w.rem)
}

// kindOf returns what the scripts call the kind of a rule's counters.
func kindOf(rule *limit.Rule) string {
	switch arith.Of(rule).Algorithm {
	case arith.TokenBucket:
		return "f"
	case arith.SlidingLog:
		return "l"
	}
	return "w"
}

// taken reads the reply.
func (c *call) taken(mode TakeMode, asks []Ask) (t Taken, by int, err error) {
	r := c.reply()
	t.Booked, t.Now = r.flag(), r.now()
	t.Answers = make([]Answer, len(asks))
	for i := range t.Answers {
		a, most := &t.Answers[i], int64(1)
		if mode == Most {
			most = asks[i].Units
		}
		a.rule, a.Units = asks[i].Rule, r.number(most)
		a.content(r)
		if mode == LookState || mode == BookState {
			a.state(r)
		}
	}
	return t, r.by, r.end()
}

// state reads the next item, what is to be known of a counter besides its content.
func (a *Answer) state(r *reader) {
	r.line = r.text()
	a.State = report.State{Gen: r.digits(maxExact), Born: r.field(maxExact), Converted: r.field(1) == 1, Level: a.Level, Buckets: a.buckets}
	if r.line != "" && arith.Of(a.rule).Units > 0 {
		if a.State.Waiting = r.field(maxExact); a.State.Waiting == 0 {
			r.fail("nobody waits until 0")
		}
	}
	r.over()
}

// content reads the next items, the content of a counter.
func (a *Answer) content(r *reader) {
	switch arith.Of(a.rule).Algorithm {
	case arith.TokenBucket:
		a.Level = r.span(a.rule)
	case arith.SlidingLog:
		a.count, a.wait, a.reset = r.number(maxExact), r.now(), r.now()
	default:
		a.current, a.past = r.number(maxExact), time.Duration(r.number(widthUS(a.rule)-1))*time.Microsecond
		a.buckets = r.buckets(a.rule)
		for _, b := range a.buckets {
			if b.ID > a.current || b.ID < a.current-int64(arith.Of(a.rule).Kept) {
				r.fail("bucket %d while the current one is %d", b.ID, a.current)
			}
		}
	}
}

// bucket returns a bucket of a window in the way of [decision.Window].
func (a *Answer) bucket(i int) (age int, units, last int64) {
	b := &a.buckets[len(a.buckets)-1-i]
	return int(a.current - b.ID), b.Units, int64(b.Last)
}

// Result returns the result of a request for n units. It is admitted if the units of the [Ask] fit,
// unless n is more than the limit: for such a request the Ask has no units.
func (a *Answer) Result(n int64) limit.Result {
	var res limit.Result
	is, most := arith.Of(a.rule), a.rule.Limit()
	allowed := a.Units > 0 && n <= most
	switch arith.Of(a.rule).Algorithm {
	case arith.TokenBucket:
		res = decision.LeakyBucket(is, allowed, n, 1, a.Level)
	case arith.SlidingLog:
		res = limit.Result{Allowed: allowed, Limit: most, Remaining: max(most-a.count, 0), ResetAfter: a.reset}
		if n > most {
			res.RetryAfter = limit.Never
		} else if !allowed {
			res.RetryAfter = max(a.wait, time.Microsecond)
		}
	default:
		res = decision.Buckets(is, n, 1, allowed, &decision.Window{Len: len(a.buckets), Bucket: a.bucket, Elapsed: a.past})
	}
	res.Source = limit.SourceRemote
	return res
}

// Used returns how many units count, those above the limit included.
func (a *Answer) Used() (n int64) {
	is := arith.Of(a.rule)
	switch arith.Of(a.rule).Algorithm {
	case arith.TokenBucket:
		return is.WholeUp(a.Level)
	case arith.SlidingLog:
		return a.count
	}
	for i := range a.buckets {
		age, units, last := a.bucket(i)
		if is.Kept > 0 && age == is.Kept {
			units -= is.Gone(units, last, int64(a.past))
		}
		n = min(n+units, arith.MaxUnits) // each of them is at most that
	}
	return n
}
