package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

var verdicts = map[byte]Verdict{
	'a': VerdictApplied, 'd': VerdictDuplicate, 'l': VerdictLost, 's': VerdictStale, 'o': VerdictOther,
}

// decodeBatch reads the reply to a batch of ops.
func decodeBatch(reply any, ops []report.Report) (Reply, error) {
	text, ok := reply.(string)
	if !ok {
		return Reply{}, fmt.Errorf("%w: %T instead of a text", ErrBadReply, reply)
	}
	r := &batchReader{text: text}
	out := r.head()
	withStates := out.Verdict == VerdictApplied || out.Verdict == VerdictDuplicate
	states := 0
	if r.text != "" {
		states = strings.Count(r.text, "\n") + 1
	}
	switch {
	case withStates && states != len(ops), !withStates && states != 0:
		r.fail("%d states for %d operations", states, len(ops))
	case withStates && r.err == nil:
		r.buckets = make([]report.Bucket, 0, strings.Count(text, ":")/2)
		out.States = make([]report.State, states)
		for i := range out.States {
			r.next()
			r.state(&out.States[i], &ops[i])
			r.over()
		}
	}
	if r.err != nil {
		return Reply{}, r.err
	}
	return out, nil
}

// batchReader reads the reply to a batch.
type batchReader struct {
	scanner
	text    string          // the lines to come
	now     int64           // µs
	buckets []report.Bucket // of all windows so far, in one allocation
}

// next goes on to the next line.
func (r *batchReader) next() {
	line, rest, more := strings.Cut(r.text, "\n")
	r.n++
	if more && rest == "" {
		r.fail("an empty line follows")
	}
	r.line, r.text = line, rest
}

// head reads the first line.
func (r *batchReader) head() (out Reply) {
	r.next()
	word := r.line
	if word == "" {
		r.fail("empty")
		return out
	}
	r.line = word[1:]
	r.now = r.field(maxExact)
	out = Reply{Verdict: verdicts[word[0]], Now: time.Duration(r.now) * time.Microsecond}
	if out.Verdict == 0 {
		r.fail("unknown verdict %.20q", word)
	}
	r.over()
	return out
}

// state reads the state of one operation's counter. A line without a letter in
// front is a counter that has no generation and was booked on by this call.
func (r *batchReader) state(st *report.State, op *report.Report) {
	kind := byte('-')
	if r.line != "" && 'a' <= r.line[0] && r.line[0] <= 'z' {
		kind, r.line = r.line[0], r.line[1:]
	}
	funnel := arith.Of(op.Rule).Algorithm == arith.TokenBucket
	switch {
	case kind == '-' && op.Debt == 0:
		st.Born = r.now
	case kind == 'e', kind == 'b':
		r.take(" ")
		st.Err = &limit.KeyError{Key: op.Key, Reason: bounded(strings.Clone(r.line))}
		st.Booked = kind == 'b'
		r.line = ""
		return
	case (kind == 'f' || kind == 'g') && funnel, (kind == 'w' || kind == 'v') && !funnel:
		st.Gen, st.Born, st.Converted = r.field(maxExact), r.field(maxExact), kind == 'g' || kind == 'v'
	default:
		r.fail("%q before %.20q", kind, r.line)
	}
	if !funnel {
		from := len(r.buckets)
		if r.buckets = r.list(r.buckets, op.Rule); len(r.buckets) > from {
			st.Buckets = slices.Clip(r.buckets[from:])
		}
		return
	}
	if kind != '-' {
		r.take(" ")
	}
	st.Level = r.level(op.Rule)
	if op.Debt > 0 {
		st.Forgiven = r.field(op.Debt)
	}
	if kind != '-' && r.line != "" {
		r.take(";")
		if st.Waiting = r.digits(maxExact); st.Waiting == 0 {
			r.fail("nobody waits until 0")
		}
	}
}

// level consumes the time at which a leaky bucket is empty, and returns how long that is from now.
func (r *batchReader) level(rule *limit.Rule) arith.Span {
	w := wireSpan{us: r.digits(maxExact), rem: r.field(denominator(rule) - 1)}
	if r.err != nil {
		return arith.Span{}
	}
	w.us -= r.now
	return fromWire(rule, w)
}
