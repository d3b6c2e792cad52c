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

// scanner reads a text of a reply. It trusts nothing: the first text that the scripts would not
// write sets err, and from then on numbers are 0. It does not allocate.
type scanner struct {
	line string // what is left of the text
	n    int    // which line or item of the reply that is, from 1 on
	err  error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: part %d: %s", ErrBadReply, s.n, fmt.Sprintf(format, args...))
	}
}

// digits consumes a number from 0 to most, which is at most 2^53, in the only spelling that scripts
// use.
func (s *scanner) digits(most int64) int64 {
	n, i := int64(0), 0
	for i < len(s.line) && i < 17 && '0' <= s.line[i] && s.line[i] <= '9' {
		n = 10*n + int64(s.line[i]-'0')
		i++
	}
	if i == 0 || i > 1 && s.line[0] == '0' || n > most {
		s.fail("%.40q does not begin with a number from 0 to %d", s.line, most)
	}
	if s.err != nil {
		return 0
	}
	s.line = s.line[i:]
	return n
}

// take consumes a text that must come next.
func (s *scanner) take(what string) {
	rest, ok := strings.CutPrefix(s.line, what)
	if !ok {
		s.fail("%.40q does not begin with %q", s.line, what)
	}
	s.line = rest
}

// field consumes a space and a number.
func (s *scanner) field(most int64) int64 {
	s.take(" ")
	return s.digits(most)
}

// over checks that nothing is left of the text.
func (s *scanner) over() {
	if s.line != "" {
		s.fail("%.40q is left", s.line)
	}
}

// list consumes the buckets of a window, which are the rest of the text, and appends them to out.
// They are in ascending order, and at most one more than the rule keeps.
func (s *scanner) list(out []report.Bucket, rule *limit.Rule) []report.Bucket {
	n, most, from := strings.Count(s.line, " "), arith.Of(rule).Kept+1, len(out)
	if n > most {
		s.fail("%d buckets, at most %d are kept", n, most)
	}
	out = slices.Grow(out, min(n, most))
	for s.line != "" && s.err == nil {
		b := report.Bucket{ID: s.field(arith.MaxUnits)}
		s.take(":")
		b.Units = s.digits(arith.MaxUnits)
		s.take(":")
		b.Last = time.Duration(s.digits(widthUS(rule))) * time.Microsecond
		if len(out) > from && out[len(out)-1].ID >= b.ID {
			s.fail("bucket %d is out of order", b.ID)
		}
		out = append(out, b)
	}
	return out
}

// reader reads a reply that is a flat array of strings. What it allocates is bounded by what has
// been received and by what was asked for.
type reader struct {
	scanner
	items []any
	by    int // index of the key that err is about, else -1
}

// text returns the next item.
func (r *reader) text() string {
	if r.err != nil {
		return ""
	}
	if r.n++; r.n > len(r.items) {
		r.fail("missing")
		return ""
	}
	s, ok := r.items[r.n-1].(string)
	if !ok {
		r.fail("%T instead of a string", r.items[r.n-1])
	}
	return s
}

// number returns the next item, a number from 0 to most.
func (r *reader) number(most int64) int64 {
	r.line = r.text()
	n := r.digits(most)
	r.over()
	return n
}

// flag returns the next item, "0" or "1".
func (r *reader) flag() bool { return r.number(1) == 1 }

// end checks that nothing is left and returns what went wrong.
func (r *reader) end() error {
	if r.err == nil && r.n != len(r.items) {
		r.n++
		r.fail("%d items too many", len(r.items)-r.n+1)
	}
	return r.err
}

// span returns the next two items, a span of a leaky bucket.
func (r *reader) span(rule *limit.Rule) arith.Span {
	return fromWire(rule, wireSpan{us: r.number(maxExact), rem: r.number(denominator(rule) - 1)})
}

// buckets returns the next item, the buckets of a window.
func (r *reader) buckets(rule *limit.Rule) []report.Bucket {
	r.line = r.text()
	return r.list(nil, rule)
}

// now returns the next item, Redis' time.
func (r *reader) now() time.Duration {
	return time.Duration(r.number(maxExact)) * time.Microsecond
}

// reply returns a reader of the reply to a call, which carries the error if there is one.
func (c *call) reply() *reader {
	r := &reader{by: -1}
	if c.err != nil {
		r.err = Wrap(c.err)
		return r
	}
	items, ok := c.val.([]any)
	if r.items = items; !ok {
		r.err = fmt.Errorf("%w: %T instead of an array", ErrBadReply, c.val)
	}
	if len(items) == 3 && items[0] == "e" {
		r.n = 1
		reason, by := r.text(), int(r.number(int64(len(c.keys))-1))
		if r.err == nil {
			r.by, r.err = by, Wrap(&limit.KeyError{Key: c.keys[by], Reason: bounded(reason)})
		}
	}
	return r
}

// bounded keeps a reason short enough for a log line.
func bounded(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
