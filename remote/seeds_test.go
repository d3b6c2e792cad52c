package remote

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The rows of the systems that this package must be able to stand in for.

// Rows 2 and 5 to 8: one call every so often. What a call is told is in TestAgainstModels.
func TestSeedRowsTimelines(t *testing.T) {
	for _, c := range []struct {
		rule  *limit.Rule
		every time.Duration
		want  string
	}{
		// 0, 5 and 10 s are admitted; at 30 s the first is exactly one window old.
		{slidingLog(t, 3, 30*time.Second), 5 * time.Second, "1110001110"},
		{slidingLog(t, 3, 30*time.Second), 3 * time.Second, strings.Repeat("1110000000", 5)},
		{slidingLog(t, 5, time.Minute), 0, "11111000000000000000"},
		{funnel(t, 10, 1, time.Hour), 0, "11111111110000000000"},
		{funnel(t, 5, 5, time.Minute), 0, "11111000000000000000"},
		{funnel(t, 16, 30, time.Minute), 0, "11111111111111110"},   // CL.THROTTLE laoqian:reply 15 30 60
		{fixed(t, 2, time.Minute), 10 * time.Second, "1100110000"}, // begun 20 s into a minute
		{sliding(t, 3, time.Minute, 60), 10 * time.Second, "1110001110"},
	} {
		b := onMini(t)
		l, got := b.limiter(), ""
		for range c.want {
			got += answers(t, l, "u", c.rule, 1)
			b.advance(c.every)
		}
		if got != c.want {
			t.Errorf("%v every %v: %s, want %s", c.rule, c.every, got, c.want)
		}
	}
}

// Fault 21: single scripts survive a flush as well.
func TestSeedRow3ScriptsSurviveFlush(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), funnel(t, 10, 1, time.Hour)
		for i := range int64(5) {
			if err := b.rdb.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if res := take(t, l, "u", rule, 1); res.Remaining != 9-i {
				t.Errorf("after flush %d: %s", i, show(res))
			}
		}
	})
}

// Nodes whose clocks are hours apart agree, for no script sees their clocks:
// the only time in a state is Redis' own.
//
// Fault 34: the only time in a state is Redis' own.
func TestSeedRow10OneClock(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), funnel(t, 10, 10, 10*time.Second)
		before := b.now()
		take(t, l, "u", rule, 3)
		after := b.now()
		var gen, born, d, us, rem int64
		state := b.get(l.store.Keyspace().CounterKey(rule, "u"))
		if _, err := fmt.Sscanf(state, "f %d %d %d/1000000 %d %d", &gen, &born, &d, &us, &rem); err != nil {
			t.Fatalf("%q: %v", state, err)
		}
		if us < before+3_000_000 || us > after+3_000_000 || d != 10_000 || gen != 0 || rem != 0 || us != born+3_000_000 {
			t.Errorf("state %q, written between %d and %d", state, before, after)
		}
	})
}
