package redisstore

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// someNotices returns n notices with numbers of every length.
func someNotices(rng *rand.Rand, n int) []report.Notice {
	number := func() int64 { return min(int64(rng.Uint64()>>(11+rng.IntN(53))), arith.MaxUnits) }
	list := make([]report.Notice, n)
	for i := range list {
		list[i] = report.Notice{
			ID: NoticeIDOf(string(rune(rng.IntN(1e6)))), Shard: rng.IntN(MaxShards), Shape: rng.Uint32(), Limit: number(), Gen: number(),
			Now: time.Duration(number()) * time.Microsecond, Until: time.Duration(number()) * time.Microsecond,
		}
	}
	return list
}

// What is written is read, and nothing else: each prefix is an error, and so is what follows.
func TestNoticesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 1))
	for _, n := range []int{0, 1, 2, 127, 128, MaxNotices} {
		list := someNotices(rng, n)
		if n > 0 {
			list[n-1] = report.Notice{Limit: arith.MaxUnits, Gen: arith.MaxUnits, Now: arith.MaxUnits * time.Microsecond, Until: arith.MaxUnits * time.Microsecond, Shard: MaxShards - 1}
		}
		payload := string(AppendNotices([]byte("before"), "node-1", list)[len("before"):])
		node, got, ok := ReadNotices(payload)
		if !ok || node != "node-1" || !reflect.DeepEqual(got, list) {
			t.Fatalf("%d notices: %q, %v, %v", n, node, got, ok)
		}
		for cut := range min(len(payload), 300) {
			if _, _, ok := ReadNotices(payload[:cut]); ok {
				t.Fatalf("%d of %d bytes were read", cut, len(payload))
			}
		}
		if _, _, ok := ReadNotices(payload + "\x00"); ok {
			t.Fatal("a byte too many was read")
		}
	}
}

// What the codec cannot carry is brought into its range, times so that a counter opens
// rather too late than too early.
func TestNoticesOutOfRange(t *testing.T) {
	long := strings.Repeat("n", MaxNodeBytes+9)
	node, list, ok := ReadNotices(string(AppendNotices(nil, long, make([]report.Notice, MaxNotices+7))))
	if !ok || node != long[:MaxNodeBytes] || len(list) != MaxNotices {
		t.Fatalf("%q, %d notices, %v", node, len(list), ok)
	}
	_, list, ok = ReadNotices(string(AppendNotices(nil, "n", []report.Notice{
		{Shard: -1, Limit: -1, Gen: -1, Now: -1, Until: -1},
		{Shard: MaxShards, Limit: 1<<63 - 1, Gen: 1<<63 - 1, Now: 1<<63 - 1, Until: 1<<63 - 1},
		{Now: 1999 * time.Nanosecond, Until: 1001 * time.Nanosecond},
	})))
	const top = arith.MaxUnits * time.Microsecond
	want := []report.Notice{{}, {Shard: MaxShards - 1, Limit: arith.MaxUnits, Gen: arith.MaxUnits, Now: top, Until: top}, {Now: time.Microsecond, Until: 2 * time.Microsecond}}
	if !ok || !reflect.DeepEqual(list, want) {
		t.Errorf("%+v, %v", list, ok)
	}
}

// hostileNotices is what anybody who may publish can send, and nobody may read.
func hostileNotices() []string {
	one := string(AppendNotices(nil, "n", []report.Notice{{Limit: 5}}))
	return []string{
		"", "\x01", "\x01\x00\x00", "\x01\x41" + strings.Repeat("n", 65) + "\x00", // no node, or too long a name
		"\x01\x03a b\x00", "\x01\x03ab", "\x01\x01n", "\x01\x01n\x02" + one[4:], "\x01\x01n\x00" + one[4:], // names that are none, other counts than there are
		"\x01\x01n\xf5\x03" + strings.Repeat(one[4:], MaxNotices+1), "\x01\x01n" + strings.Repeat("\xff", 100), // too many
		"\x01\x01n\x81\x00" + one[4:], one[:len(one)-1] + "\x80\x00", // numbers in another spelling
		one[:len(one)-1] + "\x81\x80\x80\x80\x80\x80\x80\x10", one[:len(one)-1] + "\x80\x80\x80\x80\x80\x80\x80\x80\x01", // times above 2^53
		one[:len(one)-5] + "\x80\x08" + one[len(one)-4:], // shard 1024
	}
}

// FuzzNotices: what is read has one spelling, and is in range. What is hostile is an error, and costs no memory.
func FuzzNotices(f *testing.F) {
	rng := rand.New(rand.NewPCG(35, 2))
	for n := range 4 {
		f.Add(string(AppendNotices(nil, "n", someNotices(rng, n))))
	}
	for _, payload := range []string{"\x00", "\x02", "\x02anything", "hello"} { // of other versions
		if node, list, ok := ReadNotices(payload); node != "" || list != nil || !ok {
			f.Errorf("%q: %q, %v, %v", payload, node, list, ok)
		}
	}
	for _, payload := range hostileNotices() {
		var ok bool
		if allocs := testing.AllocsPerRun(10, func() { _, _, ok = ReadNotices(payload) }); ok || allocs > 20 {
			f.Errorf("%.40q: read %v, with %v allocations", payload, ok, allocs)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		node, list, ok := ReadNotices(payload)
		if !ok || node == "" {
			if node != "" || list != nil {
				t.Fatalf("%q, %v", node, list)
			}
			return
		}
		for _, n := range list {
			if n.Shard < 0 || n.Shard >= MaxShards || min(n.Limit, n.Gen, int64(n.Now), int64(n.Until)) < 0 || max(n.Limit, n.Gen, int64(n.Now/time.Microsecond), int64(n.Until/time.Microsecond)) > arith.MaxUnits {
				t.Fatalf("%+v", n)
			}
		}
		if again := string(AppendNotices(nil, node, list)); again != payload {
			t.Fatalf("%q is read as %q", payload, again)
		}
	})
}

// The name of a counter in notices is that of its Redis key, and costs nothing.
func TestNoticeID(t *testing.T) {
	k := Keyspace{prefix: strings.Repeat("p", MaxKeyPrefixBytes), shards: MaxShards}
	long := built(t)(limit.SlidingWindow(strings.Repeat("r", arith.MaxNameBytes), 10, time.Minute))
	seen := map[report.NoticeID]bool{}
	for _, rule := range []*limit.Rule{long, funnel(t, 10, 7, time.Second), sliding(t, 10, time.Minute, 10)} {
		for _, key := range []string{"", "user:1", strings.Repeat("x", MaxKeyBytes)} {
			for _, hashed := range []bool{false, true} {
				stored := StoredKey{Text: key, Hashed: hashed}
				want := NoticeIDOf(k.CounterKeyIn(1023, rule, stored))
				if got := k.NoticeID(1023, rule, stored); got != want || seen[got] {
					t.Errorf("%v, key %.20q, %v: %x, want %x", rule, key, hashed, got, want)
				}
				seen[want] = true
				if n := testing.AllocsPerRun(20, func() { k.NoticeID(1023, rule, stored) }); n > 0 {
					t.Errorf("%v allocations for %v", n, rule)
				}
			}
		}
	}
	if got := NoticeIDOf("abc"); got != (report.NoticeID{0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e, 0x25, 0x71, 0x78, 0x50, 0xc2, 0x6c}) {
		t.Errorf("of abc: %x", got)
	}
}

// Rules that count alike have one shape, in every process and release. Others have another.
func TestShapeOf(t *testing.T) {
	rules := []*limit.Rule{
		funnel(t, 10, 7, time.Second), funnel(t, 20, 7, time.Second), funnel(t, 10, 8, time.Second), funnel(t, 10, 7, 2*time.Second),
		sliding(t, 10, time.Minute, 10), sliding(t, 11, time.Minute, 10), sliding(t, 10, time.Minute, 12), sliding(t, 10, time.Hour, 10),
		fixed(t, 10, time.Minute), fixed(t, 20, time.Minute), fixed(t, 10, time.Hour), built(t)(limit.FixedWindow("y", 10, time.Minute)),
	}
	for _, a := range rules {
		for _, b := range rules {
			if same := arith.Of(a).SameShape(arith.Of(b)); same != (arith.Of(a).ShapeHash() == arith.Of(b).ShapeHash()) {
				t.Errorf("%v and %v: same shape %v, %08x and %08x", a, b, same, arith.Of(a).ShapeHash(), arith.Of(b).ShapeHash())
			}
		}
	}
	if got, want := arith.Of(rules[0]).ShapeHash(), uint32(0xc4ac0eb0); got != want {
		t.Errorf("%08x, want %08x: processes of two releases would ignore each other's notices", got, want)
	}
	if n := testing.AllocsPerRun(20, func() { arith.Of(rules[0]).ShapeHash() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
