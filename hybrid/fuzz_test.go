package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// FuzzQuestions asks a limiter anything: it must answer, sensibly, and hand
// nothing back.
//
// Faults 41, 42, 43, 44, 49: any number for any key gives a sensible answer and hands nothing back.
func FuzzQuestions(f *testing.F) {
	m := clock.NewManual(time.Unix(1e9, 0))
	l, err := hybrid.New(nil, hybrid.Options{Clock: m, MaxKeys: 100})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Shutdown(bg) })
	rules := []*limit.Rule{longTen, longFunnel, limit.Must(limit.FixedWindow("none", 0, time.Second)), nil, {}}
	f.Add("key", int64(1), int64(1000), uint8(0))
	f.Add("}{\x00\r\n\xff", int64(-1<<63), int64(-5), uint8(7))
	f.Fuzz(func(t *testing.T, key string, n, step int64, which uint8) {
		m.Advance(time.Duration(step % int64(time.Hour)))
		rule := rules[int(which)%len(rules)]
		before := l.Peek(key, rule)
		res := l.Take(key, rule, n)
		after := l.Peek(key, rule)
		switch {
		case (n < 0 || !rule.Valid() || n > rule.Limit()) && (res.Allowed || res.RetryAfter != limit.Never):
			t.Fatalf("%v, n=%d: %+v", rule, n, res)
		case res.Remaining < 0 || res.RetryAfter < 0 || res.ResetAfter < 0:
			t.Fatalf("%v, n=%d: %+v", rule, n, res)
		case after.Remaining > before.Remaining:
			t.Fatalf("%v, n=%d: %d remained, then %d", rule, n, before.Remaining, after.Remaining)
		case res.Allowed && before.Remaining-after.Remaining > n:
			t.Fatalf("%v, n=%d: %d remained, then %d", rule, n, before.Remaining, after.Remaining)
		}
	})
}
