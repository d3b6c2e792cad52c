package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// reader reads a reply, a flat array of strings. It trusts nothing: the first item
// that the scripts would not write sets err, and from then on it returns zeros.
// What it allocates is bounded by what has been received and by what was asked
// for.
type reader struct {
	items []any
	pos   int
	err   error
}

func newReader(reply any) *reader {
	items, ok := reply.([]any)
	if !ok {
		return &reader{err: fmt.Errorf("%w: %T instead of an array", ErrBadReply, reply)}
	}
	return &reader{items: items}
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: item %d: %s", ErrBadReply, r.pos-1, fmt.Sprintf(format, args...))
	}
}

// text returns the next item.
func (r *reader) text() string {
	if r.err != nil {
		return ""
	}
	r.pos++
	if r.pos > len(r.items) {
		r.fail("missing")
		return ""
	}
	s, ok := r.items[r.pos-1].(string)
	if !ok {
		r.fail("%T instead of a string", r.items[r.pos-1])
	}
	return s
}

// number returns the next item, a number from 0 to most.
func (r *reader) number(most int64) int64 {
	s := r.text()
	if r.err != nil {
		return 0
	}
	n, ok := parseNumber(s, most)
	if !ok {
		r.fail("%.40q is not a number from 0 to %d", s, most)
	}
	return n
}

// flag returns the next item, "0" or "1".
func (r *reader) flag() bool { return r.number(1) == 1 }

// end checks that nothing is left and returns what went wrong.
func (r *reader) end() error {
	if r.err == nil && r.pos != len(r.items) {
		r.pos++
		r.fail("%d items too many", len(r.items)-r.pos+1)
	}
	return r.err
}

// parseNumber accepts only the spelling that the scripts use.
func parseNumber(s string, most int64) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > most {
		return 0, false
	}
	return n, true
}

// span returns the next two items, a span of a leaky bucket.
func (r *reader) span(rule *limit.Rule) arith.Span {
	w := wireSpan{us: r.number(maxExact), rem: r.number(denominator(rule) - 1)}
	if r.err != nil {
		return arith.Span{}
	}
	return fromWire(rule, w)
}

// buckets returns the next item, the buckets of a window in ascending order, at
// most one more than the rule keeps.
func (r *reader) buckets(rule *limit.Rule) []report.Bucket {
	list := r.text()
	if r.err != nil {
		return nil
	}
	out, why := parseBuckets(nil, list, rule)
	if why != "" {
		r.fail("%s", why)
		return nil
	}
	return out
}

// parseBuckets appends the buckets of a window, see reader.buckets. It says what is
// wrong with the list, or "".
func parseBuckets(out []report.Bucket, list string, rule *limit.Rule) ([]report.Bucket, string) {
	n, from := strings.Count(list, " "), len(out)
	if n > arithOf(rule).Kept+1 {
		return nil, fmt.Sprintf("%d buckets, at most %d are kept", n, arithOf(rule).Kept+1)
	}
	out = slices.Grow(out, n)
	for len(list) > 0 {
		var entry string
		entry, list = cutEntry(list)
		b, ok := parseBucket(entry, arithOf(rule).Width)
		if !ok || len(out) > from && out[len(out)-1].ID >= b.ID {
			return nil, fmt.Sprintf("%.80q is not a bucket, or out of order", entry)
		}
		out = append(out, b)
	}
	return out, ""
}

// window returns the next three items, a window: the units of its buckets and when
// the last units came, the current bucket first, and how much of it has passed.
func (r *reader) window(rule *limit.Rule) (counts, last []int64, past time.Duration) {
	current, elapsed := r.number(maxExact), r.number(widthUS(rule)-1)
	counts, last = make([]int64, arithOf(rule).Kept+1), make([]int64, arithOf(rule).Kept+1)
	for _, b := range r.buckets(rule) {
		age := current - b.ID
		if age < 0 || age >= int64(len(counts)) {
			r.fail("bucket %d while the current one is %d", b.ID, current)
			break
		}
		counts[age], last[age] = b.Units, int64(b.Last)
	}
	return counts, last, time.Duration(elapsed) * time.Microsecond
}

// cutEntry takes the first " id:units:last" from a list. What does not begin with a
// space yields an empty entry, which does not parse.
func cutEntry(list string) (entry, rest string) {
	if list[0] != ' ' {
		return "", ""
	}
	list = list[1:]
	if i := strings.IndexByte(list, ' '); i >= 0 {
		return list[:i], list[i:]
	}
	return list, ""
}

func parseBucket(entry string, width time.Duration) (b report.Bucket, ok bool) {
	id, rest, _ := strings.Cut(entry, ":")
	units, last, _ := strings.Cut(rest, ":")
	if b.ID, ok = parseNumber(id, limit.MaxUnits); !ok {
		return b, false
	}
	if b.Units, ok = parseNumber(units, limit.MaxUnits); !ok {
		return b, false
	}
	us, ok := parseNumber(last, int64(width/time.Microsecond))
	b.Last = time.Duration(us) * time.Microsecond
	return b, ok
}

// now returns the next item, Redis' time.
func (r *reader) now() time.Duration {
	return time.Duration(r.number(maxExact)) * time.Microsecond
}

// reply returns a reader of the reply to a call, which carries the error if there is one. If
// the reply is an error of one key, by is its index, else -1.
func (c *call) reply() (r *reader, by int) {
	if c.err != nil {
		return &reader{err: wrap(c.err)}, -1
	}
	r = newReader(c.val)
	if r.err != nil || len(r.items) != 3 || r.items[0] != "e" {
		return r, -1
	}
	r.pos = 1
	reason, by := r.text(), int(r.number(int64(len(c.keys))-1))
	if r.err != nil {
		return r, -1
	}
	r.err = wrap(&limit.KeyError{Key: c.keys[by], Reason: bounded(reason)})
	return r, by
}

// bounded keeps a reason short enough for a log line.
func bounded(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
