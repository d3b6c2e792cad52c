package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// told makes one call about a key that tells the state.
func told(t *testing.T, s *Store, mode TakeMode, key string, r *limit.Rule, n int64) (booked bool, a Answer, now time.Duration) {
	t.Helper()
	v, by, err := s.Take(ctx, mode, Ask{Counter: s.keys.CounterKey(r, key), Rule: r, Units: n, Own: n})
	if err != nil || by != -1 {
		t.Fatalf("%v %d", err, by)
	}
	return v.Booked, v.Answers[0], v.Now
}

func stateRules(t *testing.T) []*limit.Rule {
	return []*limit.Rule{funnel(t, 10, 10, time.Hour), sliding(t, 10, time.Hour, 10), fixed(t, 10, 1000*time.Hour), daily(t, 10)}
}

// heldBy returns how many units a state says that there are.
func heldBy(r *limit.Rule, st *report.State) (n int64) {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return arith.Of(r).WholeUp(st.Level)
	}
	for _, b := range st.Buckets {
		n += b.Units
	}
	return n
}

// The answer tells of which generation the counter is, when the newest unit was booked, and what it
// holds, whether units were booked or refused.
//
// Fault 104: what a node learns from a call of its own.
func TestTakeTellsTheState(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for _, r := range stateRules(t) {
			check := func(what string, a Answer, gen, born, held int64, converted bool) {
				t.Helper()
				if st := &a.State; st.Gen != gen || st.Born != born || heldBy(r, st) != held || st.Converted != converted || a.Used() != held {
					t.Errorf("%v, %s: %+v, want generation %d, born %d, %d units", r, what, st, gen, born, held)
				}
			}
			booked, a, _ := told(t, s, LookState, "k", r, 4)
			if check("nothing there", a, 0, 0, 0, false); booked || a.Units == 0 || len(b.keys()) != 0 {
				t.Errorf("%v: %+v, %q", r, a, b.keys())
			}
			booked, a, now := told(t, s, BookState, "k", r, 4)
			if check("booked", a, 0, now.Microseconds(), 4, false); !booked {
				t.Errorf("%v: refused", r)
			}
			b.pass()
			born := now.Microseconds()
			booked, a, _ = told(t, s, BookState, "k", r, 7)
			if check("refused", a, 0, born, 4, false); booked || a.Units != 0 {
				t.Errorf("%v: admitted", r)
			}
			done, err := s.Renew(ctx, "k", r, 9)
			if err != nil {
				t.Fatal(err)
			}
			b.pass()
			_, a, _ = told(t, s, LookState, "k", r, 1)
			check("set", a, done.State.Gen, done.State.Born, 9, false)
			b.pass()
			_, a, now = told(t, s, BookState, "k", r, 1)
			check("booked after a Set", a, done.State.Gen, now.Microseconds(), 10, false)
			b.rdb.FlushAll(ctx)
		}
	})
}

// A counter with a generation lives on for a while when it is only read, because the caller knows the
// generation from then on. Another one does not.
func TestTakeKeepsTheGeneration(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for _, r := range []*limit.Rule{funnel(t, 10, 10, time.Minute), sliding(t, 10, time.Minute, 10), fixed(t, 10, time.Minute)} {
			for _, mode := range []TakeMode{Look, LookState, BookState} {
				if _, err := s.Renew(ctx, "k", r, 10); err != nil {
					t.Fatal(err)
				}
				key := s.keys.CounterKey(r, "k")
				b.rdb.PExpire(ctx, key, time.Second)
				if _, _, err := s.Take(ctx, mode, Ask{Counter: key, Rule: r, Units: 5, Own: 5}); err != nil {
					t.Fatal(err)
				}
				if left := b.rdb.PTTL(ctx, key).Val(); (left >= arith.Of(r).Horizon()) != (mode != Look) {
					t.Errorf("%v, %q: kept for %v", r, mode, left)
				}
			}
			b.rdb.FlushAll(ctx)
			told(t, s, BookState, "k", r, 10)
			key := s.keys.CounterKey(r, "k")
			b.rdb.PExpire(ctx, key, time.Second)
			if told(t, s, BookState, "k", r, 5); b.rdb.PTTL(ctx, key).Val() > time.Second {
				t.Errorf("%v: a refusal prolongs a counter without a generation", r)
			}
			b.rdb.FlushAll(ctx)
		}
	})
}

// A counter that was written with another rate or width says so until it is written.
func TestTakeTellsOfAnotherShape(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for i, r := range stateRules(t) {
			other := []*limit.Rule{funnel(t, 10, 20, time.Hour), sliding(t, 10, 2*time.Hour, 10), fixed(t, 10, 2000*time.Hour), built(t)(limit.Quota("c", 10, limit.Calendar{Unit: limit.Month}))}[i]
			told(t, s, BookState, "k", r, 3)
			if _, a, _ := told(t, s, LookState, "k", other, 1); !a.State.Converted || heldBy(other, &a.State) < 3 {
				t.Errorf("%v: %+v", r, a.State)
			}
			b.rdb.FlushAll(ctx)
		}
	})
}

// Several counters are told in one call, each its own; one that cannot be read fails the call, which then
// has booked nothing.
func TestTakeTellsTheStateOfAll(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		rules := stateRules(t)
		var asks []Ask
		for i, r := range rules {
			asks = append(asks, Ask{Counter: s.keys.CounterKey(r, "k"), Rule: r, Units: int64(i + 1), Own: int64(i + 1)})
		}
		v, _, err := s.Take(ctx, BookState, asks...)
		if err != nil || !v.Booked {
			t.Fatalf("%+v, %v", v, err)
		}
		for i, r := range rules {
			if st := &v.Answers[i].State; heldBy(r, st) != int64(i+1) || st.Born != v.Now.Microseconds() {
				t.Errorf("%v: %+v", r, st)
			}
		}
		for i, r := range rules {
			key := s.keys.CounterKey(r, "k")
			b.set(key, "nonsense")
			var of *limit.KeyError
			if _, by, err := s.Take(ctx, BookState, asks...); !errors.As(err, &of) || by != i {
				t.Errorf("%v: %v, check %d", r, err, by)
			}
			b.rdb.Del(ctx, key)
			if _, a, _ := told(t, s, LookState, "k", rules[(i+1)%3], 1); heldBy(rules[(i+1)%3], &a.State) > int64((i+1)%3+1) {
				t.Errorf("%v: booked beside a key that failed: %+v", r, a.State)
			}
			told(t, s, BookState, "k", r, int64(i+1))
		}
	})
}

// takenWords is the reply to a call about anyFunnel and anyWindow that tells the states, by items.
func takenWords(v *Taken) []string {
	flags := map[bool]string{true: "1", false: "0"}
	out := []string{flags[v.Booked], fmt.Sprint(v.Now.Microseconds())}
	for i, r := range []*limit.Rule{anyFunnel, anyWindow} {
		a := &v.Answers[i]
		out = append(out, fmt.Sprint(a.Units))
		if r == anyFunnel {
			w := toWire(r, a.Level)
			out = append(out, fmt.Sprint(w.us), fmt.Sprint(w.rem))
		} else {
			out = append(out, fmt.Sprint(a.current), fmt.Sprint(a.past.Microseconds()), string(appendBuckets(nil, a.State.Buckets)))
		}
		words := fmt.Sprint(a.State.Gen, a.State.Born, flags[a.State.Converted][0]-'0')
		if a.State.Waiting > 0 {
			words += fmt.Sprint(" ", a.State.Waiting)
		}
		out = append(out, words)
	}
	return out
}

// FuzzTakenMutated spoils one item of a good reply that tells the states. What is accepted all the same
// was understood: written again it is what was read.
//
// Fault 48: a reply that no script gives.
func FuzzTakenMutated(f *testing.F) {
	for i := range uint8(30) {
		f.Add(i%2 == 0, int64(i)<<40, int64(i), int64(1)<<50, i, i/3, "007", int64(i)-3)
		f.Add(i%3 == 0, int64(7), int64(maxExact), int64(3), i, i, " 1 2", int64(1)<<53+int64(i))
	}
	f.Add(true, int64(1)<<30, int64(1), int64(9), uint8(7), uint8(2), "", int64(0)) // a bucket ahead of the current one
	f.Fuzz(func(t *testing.T, booked bool, now, gen, units int64, at, how uint8, text string, number int64) {
		now &= 1<<40 - 1
		v := Taken{Booked: booked, Now: time.Duration(now) * time.Microsecond, Answers: make([]Answer, 2)}
		width := widthUS(anyWindow)
		v.Answers[0].Units, v.Answers[0].Level = 1, arith.Span{NS: units & (1<<40 - 1) * 1000}
		v.Answers[1].current, v.Answers[1].past = now/width, time.Duration(now%width)*time.Microsecond
		for i := range v.Answers {
			v.Answers[i].State = report.State{Gen: gen & maxExact, Born: now, Converted: gen&1 != 0}
		}
		v.Answers[1].State.Buckets = []report.Bucket{{ID: now / width, Units: units&maxExact | 1, Last: time.Microsecond}}
		words := takenWords(&v)
		spoilt := slices.Clone(words)
		i := int(at) % len(words)
		switch how % 6 {
		case 0:
			spoilt[i] = text
		case 1:
			spoilt[i] += text
		case 2:
			spoilt[i] = fmt.Sprint(number)
		case 3:
			spoilt = slices.Delete(spoilt, i, i+1)
		case 4:
			spoilt = slices.Insert(spoilt, i, text)
		}
		items := make([]any, len(spoilt))
		for i, w := range spoilt {
			items[i] = w
		}
		asks := []Ask{{Counter: "f", Rule: anyFunnel, Units: 1, Own: 1}, {Counter: "w", Rule: anyWindow, Units: 1, Own: 1}}
		got, by, err := (&call{val: items, keys: []string{"f", "w"}}).taken(BookState, asks)
		switch {
		case err != nil && !errors.Is(err, ErrBadReply) && !isKeyError(err) || by < -1 || by > 1:
			t.Errorf("%q: %v, check %d", spoilt, err, by)
		case err != nil && slices.Equal(words, spoilt):
			t.Errorf("%q: %v", words, err)
		case err == nil && strings.Join(takenWords(&got), "\n") != strings.Join(spoilt, "\n"):
			t.Errorf("%q was read as %q", spoilt, takenWords(&got))
		}
	})
}
