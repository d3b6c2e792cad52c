package remote

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The rows of the systems that this package must be able to stand in for.

func TestSeedRow2SlidingLogEvery5s(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), slidingLog(t, 3, 30*time.Second)
	var got strings.Builder
	for i := range 10 {
		res := take(t, l, "u", rule, 1)
		got.WriteByte(mark(res.Allowed))
		if i == 3 && res.RetryAfter != 15*time.Second {
			t.Errorf("4th call: retry after %v, want 15s", res.RetryAfter)
		}
		b.advance(5 * time.Second)
	}
	// 0, 5 and 10 s are admitted; at 30 s the first is exactly one window old.
	if want := "1110001110"; got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

func TestSeedRow2SlidingLogEvery3s(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), slidingLog(t, 3, 30*time.Second)
	var got strings.Builder
	for range 50 {
		got.WriteByte(mark(take(t, l, "u", rule, 1).Allowed))
		b.advance(3 * time.Second)
	}
	if want := strings.Repeat("1110000000", 5); got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

func TestSeedRow2SlidingLogAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), slidingLog(t, 5, time.Minute)
		if got, want := answers(t, l, "u", rule, 20), "11111000000000000000"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// A refusal writes nothing: five members, and not one more.
		if n := b.rdb.ZCard(ctx, l.store.Keyspace().CounterKey(rule, "u")).Val(); n != 5 {
			t.Errorf("%d members, want 5", n)
		}
		b.everyKeyExpires()
	})
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

func TestSeedRow5FunnelAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		slow := funnel(t, 10, 1, time.Hour)
		if got, want := answers(t, l, "a", slow, 20), strings.Repeat("1", 10)+strings.Repeat("0", 10); got != want {
			t.Errorf("capacity 10: %s, want %s", got, want)
		}
		reply := funnel(t, 5, 5, time.Minute)
		if got, want := answers(t, l, "b", reply, 20), strings.Repeat("1", 5)+strings.Repeat("0", 15); got != want {
			t.Errorf("5 per minute: %s, want %s", got, want)
		}
		b.everyKeyExpires()
	})
}

// The facts that redis-cell prints for CL.THROTTLE laoqian:reply 15 30 60.
func TestSeedRow6CLThrottle(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), funnel(t, 16, 30, time.Minute)
	for k := int64(1); k <= 16; k++ {
		res := take(t, l, "laoqian:reply", rule, 1)
		want := limit.Result{
			Allowed: true, Limit: 16, Remaining: 16 - k, ResetAfter: time.Duration(k) * 2 * time.Second,
			Source: limit.SourceRemote,
		}
		if res != want {
			t.Errorf("call %d: %s, want %s", k, show(res), show(want))
		}
	}
	b.advance(time.Second)
	res := take(t, l, "laoqian:reply", rule, 1)
	if res.Allowed || res.Remaining != 0 || res.RetryAfter != time.Second || res.ResetAfter != 31*time.Second {
		t.Errorf("17th call, a second later: %s", show(res))
	}
	b.advance(res.RetryAfter)
	if res := take(t, l, "laoqian:reply", rule, 1); !res.Allowed {
		t.Errorf("after the wait: %s", show(res))
	}
}

func TestSeedRow7FixedWindow(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), fixed(t, 5, time.Minute)
	if got := answers(t, l, "u", rule, 20); got != strings.Repeat("1", 5)+strings.Repeat("0", 15) {
		t.Errorf("at once: %s", got)
	}
	res := take(t, l, "u", rule, 1)
	left := time.Minute - time.Duration(b.at.UnixNano())%time.Minute
	if res.RetryAfter != left || res.ResetAfter != left {
		t.Errorf("%s, the window ends in %v", show(res), left)
	}
	b.advance(left - time.Microsecond)
	if got := answers(t, l, "u", rule, 1); got != "0" {
		t.Error("admitted in the last microsecond of a full window")
	}
	b.advance(time.Microsecond)
	if got := answers(t, l, "u", rule, 6); got != "111110" {
		t.Errorf("next window: %s", got)
	}
}

func TestSeedRow8SubWindows(t *testing.T) {
	b := onMini(t)
	// One minute in 60 sub-windows of a second; the clock stands 0.123456 s
	// into one.
	l, rule := b.limiter(), sliding(t, 100, time.Minute, 60)
	if got := answers(t, l, "u", rule, 110); got != strings.Repeat("1", 100)+strings.Repeat("0", 10) {
		t.Errorf("at once: %s", got)
	}
	b.advance(59 * time.Second)
	if res := take(t, l, "u", rule, 1); res.Allowed {
		t.Errorf("after 59 s: %s", show(res))
	}
	// No more than one bucket's share of the limit may be gone before they are a minute
	// old, and then all of them are.
	b.advance(time.Second - time.Microsecond)
	if res := take(t, l, "u", rule, 0); res.Remaining != 2 {
		t.Errorf("just before 60 s: %s", show(res))
	}
	b.advance(time.Microsecond)
	if res := take(t, l, "u", rule, 0); res.Remaining != 100 {
		t.Errorf("after 60 s: %s", show(res))
	}
}

// Two overlapping windows, each with the full limit: summing them would admit
// half as much as the limit in the long run.
func TestSeedRow9TwoWindowsDoNotHalve(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), sliding(t, 60, time.Minute, 1)
	const minutes = 20
	admitted := 0
	for range minutes * 60 * 2 { // twice the limit, evenly
		if take(t, l, "u", rule, 1).Allowed {
			admitted++
		}
		b.advance(500 * time.Millisecond)
	}
	if admitted < minutes*60*9/10 || admitted > (minutes+1)*60 {
		t.Errorf("admitted %d in %d minutes at 60 a minute", admitted, minutes)
	}
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
