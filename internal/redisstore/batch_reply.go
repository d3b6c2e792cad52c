package redisstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// lineReader reads the lines of a text without allocating. It trusts nothing: the first
// text that the script would not write sets err, and from then on numbers are 0.
type lineReader struct {
	text string // the lines to come
	line string // what is left of this one
	n    int    // its number, from 1 on
	err  error
}

func (r *lineReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: line %d: %s", ErrBadReply, r.n, fmt.Sprintf(format, args...))
	}
}

// next goes on to the next line.
func (r *lineReader) next() {
	line, rest, more := strings.Cut(r.text, "\n")
	r.n++
	if more && rest == "" {
		r.fail("an empty line follows")
	}
	r.line, r.text = line, rest
}

// number consumes a number from 0 to most, which is at most 2^53, in the only spelling
// that scripts use.
func (r *lineReader) number(most int64) int64 {
	n, i := int64(0), 0
	for i < len(r.line) && i < 17 && '0' <= r.line[i] && r.line[i] <= '9' {
		n = 10*n + int64(r.line[i]-'0')
		i++
	}
	if i == 0 || i > 1 && r.line[0] == '0' || n > most {
		r.fail("%.40q does not begin with a number from 0 to %d", r.line, most)
	}
	if r.err != nil {
		return 0
	}
	r.line = r.line[i:]
	return n
}

// field consumes a space and a number.
func (r *lineReader) field(most int64) int64 {
	r.take(" ")
	return r.number(most)
}

// take consumes a text that must come next.
func (r *lineReader) take(what string) {
	rest, ok := strings.CutPrefix(r.line, what)
	if !ok {
		r.fail("%.40q does not begin with %q", r.line, what)
	}
	r.line = rest
}

// end checks that nothing is left of the line.
func (r *lineReader) end() {
	if r.line != "" {
		r.fail("%.40q is left", r.line)
	}
}

var fates = map[byte]Fate{
	'a': FateApplied, 'd': FateDuplicate, 'l': FateLost, 's': FateStale, 'o': FateOther,
}

// decodeBatch reads the reply to a batch of ops.
func decodeBatch(reply any, ops []report.Report) (Reply, error) {
	text, ok := reply.(string)
	if !ok {
		return Reply{}, fmt.Errorf("%w: %T instead of a text", ErrBadReply, reply)
	}
	r := &batchReader{lineReader: lineReader{text: text}}
	out := r.head()
	withStates := out.Fate == FateApplied || out.Fate == FateDuplicate
	states := 0
	if r.text != "" {
		states = strings.Count(r.text, "\n") + 1
	}
	switch {
	case withStates && states != len(ops), !withStates && states != 0:
		r.fail("%d states for %d operations that were %v", states, len(ops), out.Fate)
	case withStates && r.err == nil:
		r.buckets = make([]report.Bucket, 0, strings.Count(text, ":")/2)
		out.States = make([]report.State, states)
		for i := range out.States {
			r.next()
			r.state(&out.States[i], &ops[i])
			r.end()
		}
	}
	if r.err != nil {
		return Reply{}, r.err
	}
	return out, nil
}

// batchReader reads the reply to a batch.
type batchReader struct {
	lineReader
	now     int64           // µs
	buckets []report.Bucket // of all windows so far, in one allocation
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
	out = Reply{Fate: fates[word[0]], Now: time.Duration(r.now) * time.Microsecond}
	if out.Fate == 0 {
		r.fail("unknown fate %.20q", word)
	}
	r.end()
	return out
}

// state reads the state of one operation's counter. A line without a letter in
// front is a counter that has no generation and was booked on by this call.
func (r *batchReader) state(st *report.State, op *report.Report) {
	kind := byte('-')
	if r.line != "" && 'a' <= r.line[0] && r.line[0] <= 'z' {
		kind, r.line = r.line[0], r.line[1:]
	}
	funnel := op.Rule.Algorithm() == limit.AlgorithmFunnel
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
		st.Buckets = r.list(op.Rule)
		return
	}
	if kind != '-' {
		r.take(" ")
	}
	st.Level = r.level(op.Rule)
	if op.Debt > 0 {
		st.Forgiven = r.field(op.Debt)
	}
}

// level consumes the time at which a leaky bucket is empty, and returns how long that is from now.
func (r *batchReader) level(rule *limit.Rule) arith.Span {
	w := wireSpan{us: r.number(maxExact), rem: r.field(denominator(rule) - 1)}
	if r.err != nil {
		return arith.Span{}
	}
	w.us -= r.now
	return fromWire(rule, w)
}

// list consumes the buckets of a window, which are the rest of the line.
func (r *batchReader) list(rule *limit.Rule) []report.Bucket {
	from := len(r.buckets)
	all, why := parseBuckets(r.buckets, r.line, rule)
	if why != "" {
		r.fail("%s", why)
		return nil
	}
	r.buckets, r.line = all, ""
	if len(all) == from {
		return nil
	}
	return all[from:len(all):len(all)]
}
