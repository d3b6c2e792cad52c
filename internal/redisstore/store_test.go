package redisstore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// bench of one funnel (1 unit a second, capacity 100) and one window.
type bookings struct {
	t      *testing.T
	b      *backend
	s      *Store
	funnel *limit.Rule
	window *limit.Rule
	fk, wk string
}

func newBookings(t *testing.T, b *backend) *bookings {
	x := &bookings{t: t, b: b, s: b.store(), funnel: funnel(t, 100, 1, time.Hour), window: sliding(t, 100, time.Hour, 2)}
	x.fk = x.s.Keyspace().CounterKey(x.funnel, "k")
	x.wk = x.s.Keyspace().CounterKey(x.window, "k")
	return x
}

// bucket returns the current bucket of the window.
func (x *bookings) bucket() int64 { return x.b.now() / widthUS(x.window) }

// batch books n units on either counter.
func (x *bookings) batch(seq, prev, n int64) *Batch {
	return &Batch{Node: "n1", Seq: seq, Prev: prev, Ops: []report.Report{
		{Key: x.fk, Rule: x.funnel, Units: n, Ahead: arith.Of(x.funnel).Cost(n)},
		{Key: x.wk, Rule: x.window, Units: n, Buckets: []report.Bucket{{ID: x.bucket(), Units: n}}},
	}}
}

// used returns the units in both counters (whole ones: time passes).
func (x *bookings) used() (inFunnel, inWindow int64) {
	x.t.Helper()
	// A node of its own, so that the ledger of n1 is not touched.
	now := x.b.now()
	r := exec(x.t, x.s, &Batch{Node: "reader", Seq: now, Nonce: uint64(now), Accept: true, Ops: []report.Report{
		{Key: x.fk, Rule: x.funnel}, {Key: x.wk, Rule: x.window},
	}})
	return roundUp(x.funnel, r.States[0].Level), sum(r.States[1].Buckets)
}

func roundUp(rule *limit.Rule, s arith.Span) int64 {
	n := arith.Of(rule).Whole(s)
	if arith.Of(rule).Cost(n).Less(s) {
		n++
	}
	return n
}

func sum(list []report.Bucket) (n int64) {
	for _, b := range list {
		n += b.Units
	}
	return n
}

func (x *bookings) wantUsed(n int64) {
	x.t.Helper()
	if f, w := x.used(); f != n || w != n {
		x.t.Fatalf("used: funnel %d, window %d, want %d", f, w, n)
	}
}

// Fault 7: the second copy changes nothing and gets the same answer.
func TestBatchFates(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		wantReply(t, exec(t, x.s, x.batch(1, 0, 3)), VerdictApplied, 6)
		x.wantUsed(3)
		r := exec(t, x.s, x.batch(1, 0, 3))
		wantReply(t, r, VerdictDuplicate, 6)
		if n := roundUp(x.funnel, r.States[0].Level); n != 3 || sum(r.States[1].Buckets) != 3 {
			t.Fatalf("states of a duplicate: %+v", r.States)
		}
		wantReply(t, exec(t, x.s, x.batch(2, 1, 2)), VerdictApplied, 10)
		wantReply(t, exec(t, x.s, x.batch(1, 0, 3)), VerdictStale, 10)
		x.wantUsed(5)
		// A sender that skipped a number: Redis must have lost one.
		wantReply(t, exec(t, x.s, x.batch(4, 3, 2)), VerdictLost, 10)
		x.wantUsed(5)
		if r.Now <= 0 || math.Abs(float64(r.Now.Microseconds()-b.now())) > 60e6 {
			t.Errorf("reply's time %v, Redis' %v", r.Now, b.now())
		}
		b.everyKeyExpires()
	})
}

// Fault 28: a batch after a loss restores the view, then adds.
func TestBatchAfterLoss(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		known := exec(t, x.s, x.batch(1, 0, 7)).States
		if err := b.rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		second := x.batch(2, 1, 2)
		wantReply(t, exec(t, x.s, second), VerdictLost, 0)
		if keys := b.keys(); len(keys) != 0 {
			t.Fatalf("a batch that was lost wrote %q", keys)
		}
		second.Accept = true
		for i := range second.Ops {
			second.Ops[i].Restore, second.Ops[i].Known = true, known[i]
		}
		wantReply(t, exec(t, x.s, second), VerdictApplied, 4)
		x.wantUsed(9)
		wantReply(t, exec(t, x.s, second), VerdictDuplicate, 4)
		x.wantUsed(9)
		wantReply(t, exec(t, x.s, x.batch(3, 2, 1)), VerdictApplied, 6)
		x.wantUsed(10)
		b.everyKeyExpires()
	})
}

// Two processes go by one name and count the same numbers, as a virtual machine and
// its clone do. Neither takes the other's batch for its own.
//
// Fault 77: a batch of a copy is not taken for a duplicate.
func TestBatchOfACopy(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		other := b.store()
		batch := func(seq, prev, n int64, nonce uint64) *Batch {
			out := x.batch(seq, prev, n)
			out.Nonce = nonce
			return out
		}
		wantReply(t, exec(t, x.s, batch(1, 0, 3, 7)), VerdictApplied, 6)
		wantReply(t, exec(t, other, batch(1, 0, 5, 8)), VerdictOther, 6)
		wantReply(t, exec(t, x.s, batch(1, 0, 3, 7)), VerdictDuplicate, 6)
		x.wantUsed(3)
		// Whether or not the copy has been told of a loss.
		accept := batch(1, 0, 5, 8)
		accept.Accept = true
		wantReply(t, exec(t, other, accept), VerdictOther, 6)
		// Under a name of its own it is booked.
		accept.Node, accept.Accept = "n2", false
		wantReply(t, exec(t, other, accept), VerdictApplied, 10)
		x.wantUsed(8)
		// The original has gone on meanwhile: the number is too old.
		wantReply(t, exec(t, x.s, batch(2, 1, 1, 1<<63)), VerdictApplied, 8)
		wantReply(t, exec(t, other, batch(1, 0, 5, 8)), VerdictStale, 8)
		if got, want := b.get(x.s.Keyspace().SeqKey(0, "n1")), "2 8000000000000000 8 - -"; got != want {
			t.Errorf("ledger %q, want %q", got, want)
		}
		x.wantUsed(9)
		b.everyKeyExpires()
	})
}

// The ledger was rolled back by a failover to a replica that lagged.
func TestBatchAfterRollback(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		exec(t, x.s, x.batch(1, 0, 1))
		exec(t, x.s, x.batch(2, 1, 1))
		b.set(x.s.Keyspace().SeqKey(0, "n1"), "1 0000000000000000 2 - -")
		third := x.batch(3, 2, 1)
		wantReply(t, exec(t, x.s, third), VerdictLost, 2)
		third.Accept = true
		wantReply(t, exec(t, x.s, third), VerdictApplied, 4)
	})
}

// Fault 28: any number of nodes may restore.
func TestRaiseIsIdempotent(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		known := exec(t, x.s, x.batch(1, 0, 7)).States
		if err := b.rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		for i, node := range []string{"n1", "n2", "n3", "n1"} {
			raise := &Batch{Node: node, Seq: int64(100 + i), Prev: 99, Nonce: uint64(i), Accept: true, Ops: []report.Report{
				{Key: x.fk, Rule: x.funnel, Restore: true, Known: known[0]},
				{Key: x.wk, Rule: x.window, Restore: true, Known: known[1]},
			}}
			wantReply(t, exec(t, x.s, raise), VerdictApplied, 0)
			x.wantUsed(7)
		}
		b.everyKeyExpires()
	})
}

func TestRaiseAcrossGenerations(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		old := exec(t, x.s, x.batch(1, 0, 7)).States
		l := &Limiter{x.s}
		for _, rule := range []*limit.Rule{x.funnel, x.window} {
			if err := l.Reset(ctx, "k", rule); err != nil {
				t.Fatal(err)
			}
		}
		raise := func(seq int64, known []report.State) booked {
			return exec(t, x.s, &Batch{Node: "n9", Seq: seq, Nonce: uint64(seq), Accept: true, Ops: []report.Report{
				{Key: x.fk, Rule: x.funnel, Restore: true, Known: known[0]},
				{Key: x.wk, Rule: x.window, Restore: true, Known: known[1]},
			}})
		}
		fresh := raise(1, old).States
		x.wantUsed(0) // the view from before the reset is ignored
		if fresh[0].Gen < old[0].Gen+1 || fresh[1].Gen == 0 {
			t.Fatalf("generations after a reset: %+v", fresh)
		}
		b.everyKeyExpires()
	})
}

func TestReadingWritesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		x.wantUsed(0)
		empty := &Batch{Node: "n1", Seq: 1, Ops: []report.Report{
			{Key: x.fk, Rule: x.funnel, Restore: true}, {Key: x.wk, Rule: x.window, Restore: true},
		}}
		exec(t, x.s, empty)
		l := &Limiter{x.s}
		for _, rule := range []*limit.Rule{x.funnel, x.window, fixed(t, 1, time.Hour), slidingLog(t, 1, time.Hour)} {
			if res, err := l.Peek(ctx, "k", rule); err != nil || !res.Allowed || res.Remaining != rule.Limit() {
				t.Errorf("peek at an unused %v: %s, %v", rule, show(res), err)
			}
		}
		for _, k := range b.keys() {
			if !strings.Contains(k, "node:") {
				t.Errorf("reading wrote %q", k)
			}
		}
	})
}

// The time at which a funnel ran empty is told to the nodes, and told again by them:
// units that are reported late go on from there.
func TestRaiseToEmpty(t *testing.T) {
	for _, known := range []time.Duration{-400 * time.Millisecond, -time.Second, math.MinInt64} {
		for name, has := range map[string]bool{"kept": true, "lost": false} {
			t.Run(fmt.Sprint(known, name), func(t *testing.T) {
				b := onMini(t)
				s, rule := b.store(), funnel(t, 10, 1, time.Second)
				l, level := &Limiter{s}, time.Duration(-maxExact)
				if has {
					take(t, l, "k", rule, 1)
					level = -400 * time.Millisecond
				}
				b.advance(1400 * time.Millisecond)
				op := report.Report{Key: s.Keyspace().CounterKey(rule, "k"), Rule: rule}
				got := exec(t, s, &Batch{Node: "n1", Seq: 1, Ops: []report.Report{op}}).States[0].Level
				if has && got != (arith.Span{NS: int64(level)}) || !has && got.NS > -int64(time.Hour) {
					t.Errorf("level %v, want %v", got, level)
				}
				op.Units, op.Ahead, op.Restore, op.Known.Level = 1, arith.Span{NS: 2e8}, true, arith.Span{NS: int64(known)}
				got = exec(t, s, &Batch{Node: "n1", Seq: 2, Prev: 1, Ops: []report.Report{op}}).States[0].Level
				if want := max(time.Second+max(level, known), 200*time.Millisecond); got.Ceil() != want {
					t.Errorf("level %v, want %v", got, want)
				}
			})
		}
	}
}

// A reset is remembered for as long as an older view could matter, also when
// what was used since is forgotten sooner.
func TestResetOutlivesOlderViews(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	for _, rule := range []*limit.Rule{funnel(t, 100, 1, time.Hour), sliding(t, 100, time.Hour, 10), fixed(t, 5, time.Hour)} {
		key := l.keys.CounterKey(rule, "k")
		for n := range int64(3) {
			if n == 0 {
				if err := l.Reset(ctx, "k", rule); err != nil {
					t.Fatal(err)
				}
			}
			take(t, l, "k", rule, n)
			if ttl := b.rdb.PTTL(ctx, key).Val(); ttl < arith.Of(rule).Horizon()+time.Second {
				t.Errorf("%v, after %d more units: TTL %v, want %v", rule, n, ttl, arith.Of(rule).Horizon())
			}
		}
	}
}

// A key of another type or with a foreign value fails alone, stays as it is,
// and is reported again when the reply was lost and the batch is repeated.
//
// Faults 27, 48: garbage and numbers above 2^53 in a key are blamed on that key.
func TestPoisonedKeys(t *testing.T) {
	poisons := map[string]func(b *backend, key string){
		"list":     func(b *backend, key string) { b.rdb.LPush(ctx, key, "x") },
		"abc":      func(b *backend, key string) { b.set(key, "abc") },
		"nan":      func(b *backend, key string) { b.set(key, "f 0 7 nan nan nan") },
		"octal":    func(b *backend, key string) { b.set(key, "f 010 7 1000 010 010") },
		"huge":     func(b *backend, key string) { b.set(key, "f 0 7 1000 99999999999999999999 0") },
		"no last":  func(b *backend, key string) { b.set(key, "w 0 7 1000 1:5") },
		"last":     func(b *backend, key string) { b.set(key, "w 0 7 1000 1:5:1:1") },
		"negative": func(b *backend, key string) { b.set(key, "w 0 7 1000 -1:5:0") },
		"list end": func(b *backend, key string) { b.set(key, "w 0 7 1000 1:5:0 2:") },
		"width 0":  func(b *backend, key string) { b.set(key, "w 0 7 0 1:5:0") },
		"units":    func(b *backend, key string) { b.set(key, "w 0 7 1000 1:9007199254740993:0") },
		"long":     func(b *backend, key string) { b.set(key, "w 0 7 1000"+strings.Repeat(" 1:1:0", 1<<18)) },
		"level":    func(b *backend, key string) { b.set(key, "f 0 7 1000 9007199254740992 0") },
		"wraps":    func(b *backend, key string) { b.set(key, "w 0 7 1000 1:18446744073709551616:0") },
		"below 0":  func(b *backend, key string) { b.set(key, "w 0 7 1000 1:-9223372036854775808:0") },
		"nul":      func(b *backend, key string) { b.set(key, "f 0 7 1000 1 1\x00") },
	}
	onBoth(t, func(t *testing.T, b *backend) {
		for name, poison := range poisons {
			t.Run(name, func(t *testing.T) {
				b.rdb.FlushAll(ctx)
				poisoned(t, b, func(key string) { poison(b, key) })
			})
		}
	})
}

func poisoned(t *testing.T, b *backend, poison func(key string)) {
	x := newBookings(t, b)
	other := x.s.Keyspace().CounterKey(x.window, "other")
	poison(x.fk)
	poison(x.wk)
	before := b.rdb.Dump(ctx, x.fk).Val()
	batch := x.batch(1, 0, 5)
	batch.Ops = append(batch.Ops, report.Report{Key: other, Rule: x.window, Units: 2, Buckets: []report.Bucket{{ID: x.bucket(), Units: 2}}})
	for _, want := range []Verdict{VerdictApplied, VerdictDuplicate, VerdictDuplicate} {
		r := exec(t, x.s, batch)
		wantReply(t, r, want, 2)
		var key *limit.KeyError
		if !errors.As(r.States[0].Err, &key) || key.Key != x.fk || key.Reason == "" || !errors.As(r.States[1].Err, &key) {
			t.Fatalf("%v: states %+v", want, r.States)
		}
		if r.States[2].Err != nil || sum(r.States[2].Buckets) != 2 {
			t.Fatalf("%v: the good key: %+v", want, r.States[2])
		}
	}
	if got, want := b.get(x.s.Keyspace().SeqKey(0, "n1")), "1 0000000000000000 2 0,1 -"; got != want {
		t.Errorf("ledger %q, want %q", got, want)
	}
	// The memory of the failure outlives the poison.
	after := b.rdb.Dump(ctx, x.fk).Val()
	if before != after {
		t.Error("the poisoned key was changed")
	}
	b.rdb.Del(ctx, x.fk, x.wk)
	if r := exec(t, x.s, batch); r.States[0].Err == nil || r.States[1].Err == nil {
		t.Error("a repeated batch forgot what had failed")
	}
	poison(x.fk)
	l := &Limiter{x.s}
	if _, err := l.Take(ctx, "k", x.funnel, 1); !isKeyError(err) {
		t.Errorf("Take of a poisoned key: %v", err)
	}
	if err := l.Reset(ctx, "k", x.funnel); !isKeyError(err) {
		t.Errorf("Reset of a poisoned key: %v", err)
	}
}

func isKeyError(err error) bool {
	var key *limit.KeyError
	class, _ := Classify(err)
	return errors.As(err, &key) && class == ClassKey
}

// Fault 27: garbage in a ledger is a loss, not an error.
func TestPoisonedLedger(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		ledger := x.s.Keyspace().SeqKey(0, "n1")
		b.rdb.LPush(ctx, ledger, "x")
		beat, err := x.s.Beat(ctx, "n1", time.Second, []int{0}, BeatOptions{})
		if err != nil || beat.Seqs[0] != 0 {
			t.Errorf("beat over a poisoned ledger: %+v, %v", beat, err)
		}
		lost := x.batch(6, 5, 1)
		wantReply(t, exec(t, x.s, lost), VerdictLost, 0)
		lost.Accept = true
		wantReply(t, exec(t, x.s, lost), VerdictApplied, 2)
		b.set(ledger, "nonsense")
		wantReply(t, exec(t, x.s, x.batch(7, 6, 1)), VerdictLost, 0)
	})
}

func TestStateFormats(t *testing.T) {
	b := onMini(t)
	x := newBookings(t, b)
	at := b.at.UnixMicro()
	seven := funnel(t, 7, 7, 3*time.Second)
	sk := x.s.Keyspace().CounterKey(seven, "k7")
	batch := x.batch(1, 0, 3)
	batch.Ops = append(batch.Ops, report.Report{Key: sk, Rule: seven, Units: 2, Ahead: arith.Of(seven).Cost(2)})
	exec(t, x.s, batch)
	// 2 of 7 per 3 s: 857142 + 6/7 µs
	for key, want := range map[string]string{
		x.fk:                           fmt.Sprintf("f 0 %d 1000/3600000000 %d 0", at, at+3*3600*1e6),
		x.wk:                           fmt.Sprintf("w 0 %d 1800000000 %d:3:0", at, at/1800000000),
		sk:                             fmt.Sprintf("f 0 %d 7000/428571.4285714286 %d 6000", at, at+857142),
		x.s.Keyspace().SeqKey(0, "n1"): "1 0000000000000000 8 - -",
	} {
		if got := b.get(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got := b.rdb.PTTL(ctx, x.fk).Val(); got != 3*time.Hour+time.Second {
		t.Errorf("TTL of the funnel: %v", got)
	}
}

// Units whose bucket no longer counts when a batch is repeated are left out of
// the buckets, and still booked in the ledger.
func TestExpiredUnitsStayInTheLedger(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		r := exec(t, x.s, &Batch{Node: "n1", Seq: 1, Ops: []report.Report{
			{Key: x.wk, Rule: x.window, Units: 5},
			{Key: x.wk, Rule: x.window, Units: 4, Buckets: []report.Bucket{{ID: x.bucket(), Units: 3}}},
		}})
		wantReply(t, r, VerdictApplied, 9)
		if sum(r.States[1].Buckets) != 3 {
			t.Errorf("states %+v", r.States)
		}
	})
}

// An older and a newer bucket than any that may be, and another width.
//
// Faults 14, 34: a bucket that is over takes nothing, one that is ahead counts as now.
func TestWindowBooking(t *testing.T) {
	b := onMini(t)
	x := newBookings(t, b)
	now := x.bucket()
	book := func(seq int64, list ...report.Bucket) []report.Bucket {
		return exec(t, x.s, &Batch{Node: "n1", Seq: seq, Prev: seq - 1, Ops: []report.Report{
			{Key: x.wk, Rule: x.window, Units: sum(list), Buckets: list},
		}}).States[0].Buckets
	}
	at := time.Duration(b.now()%widthUS(x.window)) * time.Microsecond // since the current one began
	got := book(1, report.Bucket{ID: now - 3, Units: 100}, report.Bucket{ID: now - 2, Units: 1, Last: 7}, report.Bucket{ID: now - 1, Units: 10, Last: 30 * time.Minute}, report.Bucket{ID: now + 1, Units: 3}, report.Bucket{ID: now + 9, Units: 4})
	if want := []report.Bucket{{ID: now - 2, Units: 1, Last: time.Microsecond}, {ID: now - 1, Units: 10, Last: 30 * time.Minute}, {ID: now, Units: 7, Last: at}}; !slices.Equal(got, want) {
		t.Fatalf("booked %v, want %v", got, want)
	}
	got = book(2, report.Bucket{ID: now - 2, Units: arith.MaxUnits, Last: time.Second}, report.Bucket{ID: now - 1, Units: 1}, report.Bucket{ID: now, Units: 1, Last: at + time.Second})
	if want := []report.Bucket{{ID: now - 2, Units: arith.MaxUnits, Last: time.Second}, {ID: now - 1, Units: 11, Last: 30 * time.Minute}, {ID: now, Units: 8, Last: at + time.Second}}; !slices.Equal(got, want) {
		t.Fatalf("saturated %v, want %v", got, want)
	}
	// Redis' clock steps back by a bucket: what is ahead of it counts as now, and from now on.
	b.advance(-30 * time.Minute)
	got = book(3)
	if want := []report.Bucket{{ID: now - 2, Units: arith.MaxUnits, Last: time.Second}, {ID: now - 1, Units: 19, Last: 30 * time.Minute}}; !slices.Equal(got, want) {
		t.Fatalf("after a step back %v, want %v", got, want)
	}
	b.advance(time.Hour) // two buckets on: the oldest no longer counts
	got = book(4)
	if want := []report.Bucket{{ID: now - 1, Units: 19, Last: 30 * time.Minute}}; !slices.Equal(got, want) {
		t.Fatalf("later %v, want %v", got, want)
	}
}

func TestWindowOfAnotherWidth(t *testing.T) {
	b := onMini(t)
	s := b.store()
	wide, narrow := sliding(t, 100, time.Hour, 2), sliding(t, 100, time.Hour, 60)
	key := s.Keyspace().CounterKey(wide, "k")
	id := b.now() / widthUS(wide)
	third := arith.Of(wide).Width / 3
	exec(t, s, &Batch{Node: "n1", Seq: 1, Ops: []report.Report{
		{Key: key, Rule: wide, Units: 12, Buckets: []report.Bucket{{ID: id - 1, Units: 5, Last: third}, {ID: id, Units: 7, Last: arith.Of(wide).Width}}},
	}})
	got := exec(t, s, &Batch{Node: "n1", Seq: 2, Prev: 1, Ops: []report.Report{{Key: key, Rule: narrow}}}).States[0].Buckets
	// Each goes where its last unit lies, but not ahead of time.
	last, now := (id-1)*widthUS(wide)+int64(third/time.Microsecond), b.now()
	in := func(us int64) time.Duration { return time.Duration(us%widthUS(narrow)) * time.Microsecond }
	if want := []report.Bucket{{ID: last / widthUS(narrow), Units: 5, Last: in(last)}, {ID: now / widthUS(narrow), Units: 7, Last: in(now)}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
