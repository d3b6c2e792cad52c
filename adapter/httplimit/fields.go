package httplimit

import (
	"context"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/limit"
)

// maxInteger is the largest integer of structured fields (RFC 9651): it has 15 digits, and a
// rule's limit may have 16.
const maxInteger = 999_999_999_999_999

// A header's name in the form in which a map of header fields has it.
const (
	fieldRateLimit  = "Ratelimit"
	fieldPolicy     = "Ratelimit-Policy"
	fieldLimit      = "X-Ratelimit-Limit"
	fieldRemaining  = "X-Ratelimit-Remaining"
	fieldReset      = "X-Ratelimit-Reset"
	fieldRetryAfter = "Retry-After"
)

// writeFields sets the fields of a decision. A dry run says nothing to the client.
func (c *config) writeFields(ctx context.Context, h http.Header, d *Decision, asked []*boundLimit) {
	if s, ok := d.RetryAfterSeconds(); ok {
		h[fieldRetryAfter] = []string{strconv.Itoa(s)}
	}
	if len(d.Checks) == 0 {
		return
	}
	switch c.o.Headers {
	case DraftHeaders:
		for i, l := range asked {
			if rule := d.Checks[i].Rule; !rule.IsDryRun() {
				h[fieldPolicy] = append(h[fieldPolicy], l.policy(rule))
			}
		}
		if d := c.told(ctx, d, asked); d != nil {
			h[fieldRateLimit] = append(h[fieldRateLimit], limitItem(d, c.effectiveWindow(ctx, d)))
		}
	case XRateLimitHeaders:
		if d := c.told(ctx, d, asked); d != nil {
			h[fieldLimit] = []string{strconv.FormatInt(d.Limit, 10)}
			h[fieldRemaining] = []string{strconv.FormatInt(d.Remaining, 10)}
			h[fieldReset] = []string{strconv.FormatInt(ceilSeconds(sum(c.o.Clock.Now()+clocks.Ahead(c.o.Clock), d.ResetAfter)), 10)}
		}
	}
}

// told returns what the client hears: d, or if a dry run has decided, what is left of the limit
// that has the fewest units left and is none. nil if all are dry runs, or if the limiter cannot say
// which limit that is.
func (c *config) told(ctx context.Context, d *Decision, asked []*boundLimit) (of *Decision) {
	if !d.Rule.IsDryRun() {
		return d
	}
	for i := range d.Checks {
		q := &d.Checks[i]
		if q.Rule.IsDryRun() {
			continue
		}
		each := q.Rule.Parts()
		if each == nil {
			each = []*limit.Rule{q.Rule}
		}
		for _, rule := range each {
			res, err := c.lim.Peek(ctx, q.Key, rule)
			if err != nil {
				return nil
			}
			if of == nil || res.Remaining < of.Remaining {
				of = &Decision{AllResult: limit.AllResult{Result: res, By: i, Rule: rule}, Checks: d.Checks, Policy: asked[i].partName(q.Rule, rule)}
			}
		}
	}
	return of
}

// effectiveWindow returns for how long the client can use no more than what is left, as the
// draft wants to know it, 0 for not known. It is never longer than Retry-After says, and the
// ratio of both is never more than what the rule allows in the long run, so that a client
// which spreads its requests keeps the limit.
func (c *config) effectiveWindow(ctx context.Context, d *Decision) time.Duration {
	switch {
	case !d.Allowed && d.RetryAfter != limit.Never:
		return d.RetryAfter
	case d.Remaining == 0 && d.RetryAfter != limit.Never:
		// Until the next unit comes back. A limiter says so only to those who have been refused.
		q := &d.Checks[d.By]
		switch next, err := c.lim.Peek(ctx, q.Key, q.Rule); {
		case err != nil:
			return 0
		case next.Remaining > 0:
			return time.Second // it has come back since
		case !next.Allowed && next.RetryAfter != limit.Never:
			return next.RetryAfter
		}
	case arith.Of(d.Rule).Algorithm == arith.TokenBucket:
		return refillTime(d.Rule, d.Remaining)
	}
	return d.ResetAfter
}

// refillTime returns the time in which n units of a bucket come back, rounded up. All of them
// do within 100 years.
func refillTime(rule *limit.Rule, n int64) time.Duration {
	units := uint64(arith.Of(rule).Units)
	hi, lo := bits.Mul64(uint64(min(max(n, 0), rule.Limit())), uint64(rule.Period()))
	lo, carry := bits.Add64(lo, units-1, 0)
	t, _ := bits.Div64(hi+carry, lo, units)
	return time.Duration(t)
}

// policy returns the item of RateLimit-Policy for a rule of this limit.
func (l *boundLimit) policy(rule *limit.Rule) string {
	if l.item != "" && (l.except == nil || rule == l.Rule) {
		return l.item
	}
	return l.items(rule)
}

// items returns the items of RateLimit-Policy for a rule: one, or one for each part.
func (l *boundLimit) items(rule *limit.Rule) string {
	if rule.Parts() == nil {
		return policyItem(l.name(rule), rule)
	}
	var list []string
	for _, part := range rule.Parts() {
		if !part.IsDryRun() {
			list = append(list, policyItem(l.partName(rule, part), part))
		}
	}
	return strings.Join(list, ", ")
}

// policyItem returns an item of RateLimit-Policy. The window is rounded up: the draft knows
// whole seconds only, and a client that believes in a longer window keeps the limit. A day of a quota
// by the calendar may be an hour longer than its window says: then t of RateLimit is what counts.
func policyItem(name string, rule *limit.Rule) string {
	b := appendString(make([]byte, 0, len(name)+40), name)
	b = append(b, ";q="...)
	b = strconv.AppendInt(b, min(rule.Limit(), maxInteger), 10)
	window := rule.Period()
	if arith.Of(rule).Algorithm == arith.TokenBucket {
		window = refillTime(rule, rule.Limit())
	}
	return string(appendSeconds(b, ";w=", window))
}

// limitItem returns an item of RateLimit.
func limitItem(d *Decision, window time.Duration) string {
	b := appendString(make([]byte, 0, len(d.Policy)+40), d.Policy)
	b = append(b, ";r="...)
	b = strconv.AppendInt(b, min(max(d.Remaining, 0), maxInteger), 10)
	return string(appendSeconds(b, ";t=", window))
}

// appendSeconds appends a parameter that is a time, rounded up, unless it is 0.
func appendSeconds(b []byte, name string, t time.Duration) []byte {
	if t <= 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), ceilSeconds(t), 10)
}

// appendString appends a string of RFC 9651. What such a string cannot hold is written as
// %xx, so that the field is well-formed for any name.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// isPrintable reports whether a string of RFC 9651 can hold s.
func isPrintable(s string) bool { return all(s, func(c byte) bool { return ' ' <= c && c <= '~' }) }

func ceilSeconds(t time.Duration) int64 {
	s := int64(t / time.Second)
	if t%time.Second > 0 {
		s++
	}
	return s
}

// sum adds times, at most [limit.Never].
func sum(a, b time.Duration) time.Duration {
	if a > limit.Never-b {
		return limit.Never
	}
	return a + b
}
