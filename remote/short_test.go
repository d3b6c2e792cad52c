package remote

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// longWay is the batch script without its short ways for the usual states.
func longWay(t *testing.T) *script {
	t.Helper()
	text := batchSource
	for _, way := range []string{"pour", "pour_window"} {
		from := " and " + way + "(key, at, out, n) then"
		if strings.Count(text, from) != 1 {
			t.Fatalf("no call of %s", way)
		}
		text = strings.Replace(text, from, " and false then", 1)
	}
	return newScript(text)
}

// A batch that goes the short way leaves and tells the same as one that does not,
// whatever is at the key.
func TestShortWayIsTheSame(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		rng := rand.New(rand.NewPCG(5, 6))
		long, runs := longWay(t), 2000
		// On a real server time passes between the two: by less than a bucket.
		width := int64(20_000_000)
		if b.mini == nil {
			width, runs = 50_000_000_000, 2000
		}
		shorter := 0
		for i := range runs {
			cur := b.now() / width
			op, state := randomOp(rng, width, cur), ""
			switch rng.IntN(10) {
			case 0:
			case 1:
				if rng.IntN(10) == 0 {
					state = vast(width, cur)
				}
			default:
				state = randomState(rng, width, cur)
			}
			short := b.apply(scriptBatch, fmt.Sprint("s", i), op, state)
			want := b.apply(long, fmt.Sprint("l", i), op, state)
			if !reflect.DeepEqual(short, want) {
				t.Fatalf("%q on %q, bucket %d\nis    %q\nwants %q", op, state, cur, short, want)
			}
			if strings.HasPrefix(state, "w 0 ") && op[0] != "0" && short[1] != state {
				shorter++
			}
		}
		if shorter < runs/10 {
			t.Errorf("of %d only %d could have been short", runs, shorter)
		}
	})
}

var (
	times = regexp.MustCompile(`\b1[7-9]\d{14}\b`)
	lasts = regexp.MustCompile(`( \d+:\d+):\d+`)
)

// apply sends a batch of one operation on a window that is in a state, and returns
// what it tells, what it leaves, and for how many seconds.
func (b *backend) apply(s *script, name string, op []string, state string) [3]string {
	b.t.Helper()
	ledger, key := "{"+name+"}ledger", "{"+name+"}key"
	if state != "" {
		if err := b.rdb.Set(ctx, key, state, time.Hour).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	args := []any{"1", "0", "1", "60000", "00", "w", len(op)}
	for _, a := range op {
		args = append(args, a)
	}
	reply, err := b.rdb.Eval(ctx, s.source, []string{ledger, key}, args...).Slice()
	if err != nil {
		b.t.Fatalf("%q on %q: %v", op, state, err)
	}
	value, _ := b.rdb.Get(ctx, key).Result()
	ttl := time.Duration(0)
	if b.mini != nil {
		ttl = b.mini.TTL(key)
	}
	told := fmt.Sprint(reply[2:])
	if b.mini == nil { // a generation is called by the time at which it began
		told, value = times.ReplaceAllString(told, "T"), times.ReplaceAllString(value, "T")
		// What is ahead has come by now, too.
		told, value = lasts.ReplaceAllString(told, "$1"), lasts.ReplaceAllString(value, "$1")
	}
	return [3]string{told, value, ttl.String()}
}

// randomOp returns the fields of an operation on a window, mostly a usual one.
func randomOp(rng *rand.Rand, width, cur int64) []string {
	const kept = 10
	id := cur
	if rng.IntN(3) == 0 {
		id += rng.Int64N(2*kept) - kept - 4
	}
	units := rng.Int64N(5)
	last := func() int64 { return []int64{0, rng.Int64N(width + 1), width}[rng.IntN(3)] }
	list := fmt.Sprintf(" %d:%d:%d", id, max(units, 1), last())
	switch rng.IntN(12) {
	case 0:
		list, units = "", 0
	case 1:
		list = fmt.Sprintf(" %d:1:%d %d:%d:%d", id-1, last(), id, units+1, last())
	case 2:
		list, units = fmt.Sprintf(" %d:9007199254740992:0", id), 9007199254740992
	}
	op := []string{fmt.Sprint(units), fmt.Sprint(width), fmt.Sprint(kept), "300000", list}
	if rng.IntN(15) == 0 {
		op = append(op, "b", fmt.Sprintf(" %d:1:0", cur), "0")
	}
	return op
}

// vast returns the state of a window that is longer than any that a script leaves.
func vast(width, cur int64) string {
	var s strings.Builder
	fmt.Fprintf(&s, "w 0 7 %d", width)
	for id := cur - 10_000; id <= cur; id++ {
		fmt.Fprintf(&s, " %d:1:0", id)
	}
	return s.String()
}

// randomState returns the state of a window, mostly one that a script has left, else
// one that has been tampered with.
func randomState(rng *rand.Rand, width, cur int64) string {
	if rng.IntN(20) == 0 {
		width++
	}
	gen := "0"
	if rng.IntN(15) == 0 {
		gen = []string{"5", "7/3", "00", "x", "0/0"}[rng.IntN(5)]
	}
	var s strings.Builder
	born := fmt.Sprint(rng.Int64N(1 << 53))
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
