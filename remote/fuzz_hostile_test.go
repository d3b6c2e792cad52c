package remote

import (
	"errors"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// lying returns a client of a liar; most bounds its replies, 0 not at all.
func lying(l *redistest.Liar, most int) *redis.Client {
	o := options("127.0.0.1:6379")
	o.Dialer = l.Dial
	if most > 0 {
		o.Dialer = redisstore.BoundReplies(l.Dial, most)
	}
	o.PoolSize, o.MaxRetries = 1, -1 // a greeting that fails is retried otherwise
	return redis.NewClient(o)
}

// victim is all of this package on one client.
type victim struct {
	*Limiter
	store *redisstore.Store
}

func newVictim(t *testing.T, rdb redis.UniversalClient) victim {
	t.Helper()
	l, err1 := New(rdb, Options{Shards: 4})
	s, err2 := redisstore.NewStore(rdb, redisstore.Options{Shards: 4})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return victim{l, s}
}

var (
	anyFunnel  = limit.Must(limit.TokenBucket("f", 7, time.Second, 10))
	anyWindow  = limit.Must(limit.SlidingWindow("w", 10, time.Second))
	anyFixed   = limit.Must(limit.FixedWindow("x", 10, time.Second))
	anyLog     = limit.Must(limit.SlidingLog("l", 10, time.Second))
	everyRule  = []*limit.Rule{anyFunnel, anyWindow, anyFixed, anyLog}
	shardsOf4  = []int{0, 1, 2, 3}
	victimAsks = 4 * len(everyRule)
)

// ask does one of the things that the package can do, and checks whatever
// comes of it: a well-formed answer, or an error of a class.
func (v victim) ask(t *testing.T, which int) error {
	t.Helper()
	rule := everyRule[which/4%len(everyRule)]
	switch which % 4 {
	case 0:
		res, err := v.Take(ctx, "k", rule, 3)
		checkTaken(t, rule, 3, res, err)
		return err
	case 1:
		res, err := v.Peek(ctx, "k", rule)
		checkTaken(t, rule, 1, res, err)
		return err
	case 2:
		return v.Reset(ctx, "k", rule)
	}
	switch which {
	case 3, 7:
		return v.beat(t)
	case 11:
		return v.all(t)
	}
	return v.exec(t)
}

func (v victim) all(t *testing.T) error {
	t.Helper()
	var checks []limit.Check
	for _, r := range everyRule {
		checks = append(checks, limit.Check{Key: "k", Rule: r, N: 3})
	}
	all, err := v.TakeAll(ctx, checks...)
	if err == nil {
		checkTaken(t, all.Rule, 3, all.Result, nil)
	} else if all.Allowed {
		t.Fatalf("%+v, although %v", all, err)
	}
	return err
}

func (v victim) beat(t *testing.T) error {
	t.Helper()
	b, err := v.store.Beat(ctx, "n", time.Second, shardsOf4, redisstore.BeatOptions{})
	if b.Nodes < 0 || b.Now < 0 || len(b.Seqs) != len(shardsOf4) || err != nil && b.Nodes > 0 != (b.Now > 0) && b.Nodes > 0 {
		t.Fatalf("beat %+v, %v", b, err)
	}
	for _, s := range b.Seqs {
		if s < -1 || s > 1<<53-1 || s < 0 && err == nil {
			t.Fatalf("beat %+v, %v", b, err)
		}
	}
	return errors.Join(err, v.store.Leave(ctx, "n", shardsOf4[:1]))
}

func (v victim) exec(t *testing.T) error {
	t.Helper()
	ops := []report.Report{
		{Key: v.store.Keyspace().CounterKey(anyFunnel, "a"), Rule: anyFunnel, Units: 1},
		{Key: v.store.Keyspace().CounterKey(anyWindow, "a"), Rule: anyWindow, Units: 1},
	}
	var batches []*redisstore.Batch
	for i := range ops {
		shard := v.store.Keyspace().Shard("a")
		batches = append(batches, &redisstore.Batch{Shard: shard, Node: "n", Seq: 1, Ops: ops[i : i+1]})
	}
	var all error
	outs, _ := v.store.Exec(ctx, batches, nil)
	for i, out := range outs {
		if all = errors.Join(all, out.Err); out.Err == nil {
			if n := len(out.Reply.States); n > 1 || out.Reply.Verdict == 0 || out.Reply.Now < 0 {
				t.Fatalf("batch %d: %+v", i, out.Reply)
			}
		}
	}
	return all
}

func checkTaken(t *testing.T, rule *limit.Rule, n int64, res limit.Result, err error) {
	t.Helper()
	switch {
	case err != nil && (res.Allowed || res.Limit != rule.Limit()):
		t.Fatalf("%v: %s, although %v", rule, show(res), err)
	case err == nil && (res.Remaining < 0 || res.Remaining > rule.Limit() || res.RetryAfter < 0 || res.ResetAfter < 0),
		err == nil && res.Allowed != (res.RetryAfter == 0),
		res.Allowed && n > rule.Limit(), res.Limit != rule.Limit():
		t.Fatalf("%v, n = %d: %s", rule, n, show(res))
	}
}

// checkError checks that an error is one that a caller can do something with.
func checkError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	class, reason := Classify(err)
	if class < ClassUnavailable || class > ClassKey || reason == "" || reason == "panic" || !strings.HasPrefix(err.Error(), "remote: ") {
		t.Fatalf("error %.200q is %v %q", err, class, reason)
	}
}

// allocated returns how many bytes have been allocated since the start.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// hostileReplies have done harm, or look as if they might.
var hostileReplies = []string{
	"", "\r\n", "\n", "+\r\n", "+OK\r\n", "-\r\n", "$-1\r\n", "*-1\r\n", "_\r\n", "$-2\r\n", ":1\r\n", "#t\r\n", ",nan\r\n", "(1\r\n",
	"*0\r\n", "*3\r\n$1\r\n1\r\n$1\r\n5\r\n$1\r\n6\r\n", "*3\r\n+1\r\n+5\r\n+6\r\n*2\r\n+1\r\n+2\r\n",
	"*4\r\n+1\r\n+17600000000\r\n+5\r\n+ 17600000000:3\r\n", "*3\r\n+e\r\n+WRONGTYPE\r\n+0\r\n", "*2\r\n+e\r\n:1\r\n", "*1\r\n*1\r\n*0\r\n",
	"-NOSCRIPT x\r\n", "-MOVED 1 1.2.3.4:5\r\n", "-ASK 1 :0\r\n", "-LOADING\r\n", "-READONLY x\r\n", "-NOAUTH\r\n", "-ERR\r\n", "!3\r\nabc\r\n",
	"%1\r\n*0\r\n+a\r\n", "%1\r\n,nan\r\n+a\r\n", "%1\r\n-E\r\n$9\r\n*99999\r\n\r\n", "=3\r\nabc\r\n", "=8\r\ntxt:abcd\r\n",
	"|1\r\n+a\r\n+b\r\n*2\r\n+1\r\n+2\r\n", "|0\r\n", ">2\r\n+message\r\n+b\r\n*2\r\n+3\r\n+2\r\n", ">1\r\n$99999999999999\r\n", ">0\r\n",
	"$9223372036854775807\r\n", "$9223372036854775805\r\n", "$9223372036854775808\r\n", "$2147483647\r\n", "*2147483647\r\n", "*9223372036854775807\r\n",
	"%4611686018427387904\r\n", "%2147483647\r\n", "~1000000000\r\n", "|9223372036854775807\r\n", ">2147483647\r\n", "=9999999999\r\n", "!9999999999\r\n",
	"*1\r\n$00000000000000000000000000000000000000000009\r\n", "$?\r\n", "*?\r\n", "*+3\r\n", "$1_0\r\n",
}

// bound is what the fuzzers let one reply take.
const bound = 64 << 10

// FuzzHostileServer lets any bytes answer: no panic, no more memory than what
// was said to be allowed, no goroutine left, and an error of a class or an
// answer that makes sense.
func FuzzHostileServer(f *testing.F) {
	for i, lie := range hostileReplies {
		f.Add([]byte(lie), uint8(i), i%2 == 0, uint16(i%5))
		f.Add([]byte(strings.Repeat(lie, 5)), uint8(i*7), i%2 == 1, uint16(0))
	}
	for which := range victimAsks {
		f.Add([]byte("*6\r\n+1\r\n+9\r\n+1\r\n+8800000000\r\n+5\r\n+ 8800000000:3:1\r\n"), uint8(which), true, uint16(0))
		f.Add([]byte("*5\r\n+1\r\n+9\r\n$1\r\n1\r\n$4\r\n1000\r\n$1\r\n7\r\n"), uint8(which), true, uint16(1))
		f.Add([]byte(strings.Repeat("$42\r\na 1760000000123456 5\n1760000000123459 69\r\n", 2)), uint8(which), true, uint16(0))
		f.Add([]byte(strings.Repeat("*2\r\n+3\r\n+1760000000123456\r\n", 6)), uint8(which), true, uint16(0))
	}
	f.Fuzz(func(t *testing.T, lie []byte, which uint8, greets bool, chunk uint16) {
		if len(lie) > bound {
			t.Skip()
		}
		l := &redistest.Liar{Lie: lie, Chunk: int(chunk)}
		if greets {
			l.Greeting = redistest.Greeting
		}
		goroutines, bytes := runtime.NumGoroutine(), allocated()
		rdb := lying(l, bound)
		checkError(t, newVictim(t, rdb).ask(t, int(which)%victimAsks))
		_ = rdb.Close()
		// At worst a whole pipeline, sent twice, of replies of the allowed size.
		if got, most := allocated()-bytes, uint64(4<<20+60*len(lie)); got > most {
			t.Errorf("%d bytes allocated for a reply of %d: %.80q", got, len(lie), lie)
		}
		poll(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	})
}
