package redisstore

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// longWay is the batch script without its short ways for the usual states.
func longWay(t *testing.T) *script {
	t.Helper()
	return &script{source: replaced(t, scriptBatch.source, "local funnels, windows, spelled, spelling = rules.f1, rules.w1, nil, nil", "local funnels, windows, spelled, spelling")}
}

// replaced replaces what must be in a script once.
func replaced(t *testing.T, text, was, is string) string {
	t.Helper()
	if strings.Count(text, was) != 1 {
		t.Fatalf("%q is not there once", was)
	}
	return strings.Replace(text, was, is, 1)
}

// A batch that goes the short way leaves and tells the same as one that does not,
// whatever is at the key.
func TestShortWayIsTheSame(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		rng := rand.New(rand.NewPCG(5, 6))
		long, now, runs := longWay(t), b.now(), limittest.Cases(3000, 500)
		done := map[byte]int{}
		for i := range runs {
			kind, op, state := byte('w'), "", ""
			if i%2 == 0 {
				kind = 'f'
				op, state = randomPour(rng, now), randomFunnel(rng, now)
			} else {
				op, state = randomOp(rng, now/shortWidth), randomWindow(rng, now/shortWidth)
			}
			if rng.IntN(10) == 0 {
				state = ""
			}
			short := b.apply(scriptBatch, now, fmt.Sprint("s", i), op, state)
			want := b.apply(long, now, fmt.Sprint("l", i), op, state)
			if short.took = false; !reflect.DeepEqual(short, want) {
				t.Fatalf("%q on %q at %d\nis    %+v\nwants %+v", op, state, now, short, want)
			}
			if b.apply(scriptBatch, now, fmt.Sprint("t", i), op, state).took {
				done[kind]++
			}
		}
		if done['f'] < runs/20 || done['w'] < runs/20 {
			t.Errorf("of %d only %v went the short way", runs, done)
		}
	})
}

// What the operations of the test are booked under.
const (
	shortWidth = int64(20_000_000)
	shortKept  = 10
	shortRate  = "7000/142857.14285714287"
	shortRules = "f 7000/142857.14285714287 300000 142857 1000\nw 20000000 10 300000\n"
)

// effect is what a batch of one operation tells, and leaves.
type effect struct {
	told   report.State
	why    string
	ledger string
	value  string
	ttl    time.Duration
	took   bool // the short way
}

// apply sends a batch of one operation on a key that is in a state. The script reads a
// fixed time instead of the server's.
func (b *backend) apply(s *script, now int64, name, op, state string) (e effect) {
	b.t.Helper()
	ledger, key := "{"+name+"}ledger", "{"+name+"}key"
	switch {
	case state == "other type":
		b.rdb.SAdd(ctx, key, "x")
	case state != "":
		b.set(key, state)
	}
	text := replaced(b.t, s.source, "local t = redis.call('TIME')\n", fmt.Sprintf("local t = { '%d', '%d' }\n", now/1e6, now%1e6))
	reply, err := b.rdb.Eval(ctx, text, []string{ledger, key}, "1", "0", "1", "60000", "00", "7", shortRules, op+"\n").Text()
	if err != nil {
		b.t.Fatalf("%q on %q: %v", op, state, err)
	}
	rule := built(b.t)(limit.TokenBucket("f", 7, time.Second, 10))
	if op[0] == 'w' {
		rule = sliding(b.t, 10, 200*time.Second, shortKept)
	}
	ops := []report.Report{{Key: key, Rule: rule}}
	r, err := decodeBatch(reply, ops)
	if err != nil {
		b.t.Fatalf("%q on %q: %q: %v", op, state, reply, err)
	}
	e.told = r.States[0]
	e.ledger, _ = b.rdb.Get(ctx, ledger).Result()
	if e.told.Err != nil {
		e.why, e.told.Err = e.told.Err.(*limit.KeyError).Reason, nil
	}
	e.value, _ = b.rdb.Get(ctx, key).Result()
	// A real server counts down by its own clock.
	e.ttl = b.rdb.PTTL(ctx, key).Val().Round(time.Minute)
	_, line, _ := strings.Cut(reply, "\n")
	e.took = line[0] == ' ' || line[0] <= '9'
	return e
}

// randomPour returns an operation on a funnel, mostly a usual one.
func randomPour(rng *rand.Rand, now int64) string {
	number := func() int64 { return []int64{0, rng.Int64N(10), rng.Int64N(1e9), 1<<53 - 1}[rng.IntN(40)%4] }
	op := fmt.Sprintf("f1 %d %d %d %d %d", []int64{0, 1, 7}[rng.IntN(20)%3], number(), rng.Int64N(7000), number(), rng.Int64N(2)*rng.Int64N(7000))
	switch rng.IntN(40) {
	case 0:
		op += fmt.Sprintf(";b 5 0 0 %d 0", number())
	case 1:
		op += ";r 0 0 5 0"
	case 2:
		op = "f2" + op[2:]
	case 3:
		op += " 1"
	}
	return op
}

// randomFunnel returns the state of a funnel, mostly one that a script has left.
func randomFunnel(rng *rand.Rand, now int64) string {
	pick := func(usual string, others ...string) string {
		if rng.IntN(20) > 0 {
			return usual
		}
		return others[rng.IntN(len(others))]
	}
	odd := []string{"0", "00", "07", "x", "", "9007199254740991", "9007199254740992", "99999999999999999999", "1e15", "-1", "6999", "7000"}
	state := fmt.Sprintf("%s %s %s %s %s %s", pick("f", "w", "g", ""), pick("0", "5", "7/3", "00"), pick(fmt.Sprint(now-rng.Int64N(1e9)), odd...),
		pick(shortRate, "7000/142857x14285714287", "7000/1", "7000", "700/142857.14285714287"), pick(fmt.Sprint(now+rng.Int64N(2e7)-1e7), odd...), pick(fmt.Sprint(rng.Int64N(2)*rng.Int64N(7000)), odd...))
	switch rng.IntN(60) {
	case 0:
		return "other type"
	case 1:
		return state + " "
	case 2:
		return strings.Repeat(state, 4)
	}
	return state
}

// randomOp returns an operation on a window, mostly a usual one.
func randomOp(rng *rand.Rand, cur int64) string {
	id := cur
	if rng.IntN(3) == 0 {
		id += rng.Int64N(2*shortKept) - shortKept - 4
	}
	units := rng.Int64N(5)
	last := func() int64 { return []int64{0, rng.Int64N(shortWidth + 1), shortWidth}[rng.IntN(3)] }
	list := fmt.Sprintf(" %d:%d:%d", id, max(units, 1), last())
	switch rng.IntN(12) {
	case 0:
		list, units = "", 0
	case 1:
		list = fmt.Sprintf(" %d:1:%d %d:%d:%d", id-1, last(), id, units+1, last())
	case 2:
		list, units = fmt.Sprintf(" %d:9007199254740992:0", id), 9007199254740992
	}
	op := fmt.Sprintf("w1 %d%s", units, list)
	if rng.IntN(15) == 0 {
		op += fmt.Sprintf(";b 0 %d:1:0", cur)
	}
	return op
}

// vast returns the state of a window that is longer than any that a script leaves.
func vast(cur int64) string {
	var s strings.Builder
	fmt.Fprintf(&s, "w 0 1760000000000000 %d", shortWidth)
	for id := cur - 10_000; id <= cur; id++ {
		fmt.Fprintf(&s, " %d:1:0", id)
	}
	return s.String()
}

// randomWindow returns the state of a window, mostly one that a script has left, else
// one that has been tampered with.
func randomWindow(rng *rand.Rand, cur int64) string {
	width := shortWidth
	switch rng.IntN(100) {
	case 0:
		return vast(cur)
	case 1:
		return "other type"
	case 2, 3, 4, 5:
		width++
	}
	gen := "0"
	if rng.IntN(15) == 0 {
		gen = []string{"5", "7/3", "00", "x", "0/0"}[rng.IntN(5)]
	}
	var s strings.Builder
	born := fmt.Sprint(cur*width - rng.Int64N(1e9))
	if rng.IntN(15) == 0 {
		born = []string{"0", "00", "x", "", "9007199254740991", "9007199254740992"}[rng.IntN(6)]
	}
	fmt.Fprintf(&s, "w %s %s %d", gen, born, width)
	end := cur
	if rng.IntN(4) == 0 {
		end -= rng.Int64N(16) - 2
	}
	for id := cur - rng.Int64N(16); id <= end; id += 1 + rng.Int64N(4) {
		fmt.Fprintf(&s, " %d:%d:%d", id, 1+rng.Int64N(99), []int64{0, rng.Int64N(width), width, width + 1}[rng.IntN(60)%4])
	}
	text := s.String()
	if rng.IntN(4) > 0 {
		return text
	}
	at := rng.IntN(len(text))
	junk := []string{" ", ":", "0", "-", "x", " 0:1:0", "9999999999999", fmt.Sprintf(" %d:3:0", cur-rng.Int64N(12)+1), " 0" + fmt.Sprint(cur) + ":1:0", ":01", "1:0", ":1"}[rng.IntN(12)]
	switch rng.IntN(3) {
	case 0:
		return text[:at] + text[at+1:]
	case 1:
		return text + junk
	}
	return text[:at] + junk + text[at:]
}
