package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// liar is a server that has its answer ready whatever it is asked, and closes
// the connection when it has said it.
type liar struct {
	greeting []byte // answer to the first thing a connection says; nil: it lies at once
	lie      []byte // answer to everything else
	chunk    int    // bytes per read; 0: all
}

func (l *liar) dial(context.Context, string, string) (net.Conn, error) {
	return &lyingConn{liar: l, lying: l.greeting == nil}, nil
}

type lyingConn struct {
	net.Conn // nil: nothing else is asked of it
	liar     *liar
	lying    bool
	out      bytes.Reader
}

func (c *lyingConn) Write(p []byte) (int, error) {
	answer := c.liar.greeting
	if c.lying {
		answer = c.liar.lie
	}
	c.lying = true
	rest, _ := io.ReadAll(&c.out)
	c.out.Reset(append(rest, answer...))
	return len(p), nil
}

func (c *lyingConn) Read(p []byte) (int, error) {
	if k := c.liar.chunk; k > 0 && k < len(p) {
		p = p[:k]
	}
	return c.out.Read(p)
}

func (*lyingConn) Close() error                     { return nil }
func (*lyingConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*lyingConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*lyingConn) SetDeadline(time.Time) error      { return nil }
func (*lyingConn) SetReadDeadline(time.Time) error  { return nil }
func (*lyingConn) SetWriteDeadline(time.Time) error { return nil }

// greeting is what Redis answers to HELLO 3.
var greeting = []byte("%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n")

// client returns a client of the liar; most bounds its replies, 0 not at all.
func (l *liar) client(most int) *redis.Client {
	o := options("127.0.0.1:6379")
	o.Dialer = l.dial
	if most > 0 {
		o.Dialer = BoundReplies(l.dial, most)
	}
	o.PoolSize, o.MaxRetries = 1, -1 // a greeting that fails is retried otherwise
	return redis.NewClient(o)
}

// victim is all of this package on one client.
type victim struct {
	*Limiter
	store *Store
}

func newVictim(t *testing.T, rdb redis.UniversalClient) victim {
	t.Helper()
	l, err1 := New(rdb, Options{Shards: 4})
	s, err2 := NewStore(rdb, Options{Shards: 4})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return victim{l, s}
}

var (
	anyFunnel  = limit.Must(limit.Funnel("f", 10, 7, time.Second))
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
	b, err := v.store.Beat(ctx, "n", time.Second, shardsOf4, BeatOptions{})
	if b.Nodes < 0 || b.Now < 0 || len(b.Seqs) != len(shardsOf4) || err != nil && b.Nodes > 0 != (b.Now > 0) && b.Nodes > 0 {
		t.Fatalf("beat %+v, %v", b, err)
	}
	for _, s := range b.Seqs {
		if s < -1 || s > maxExact || s < 0 && err == nil {
			t.Fatalf("beat %+v, %v", b, err)
		}
	}
	return errors.Join(err, v.store.Leave(ctx, "n", shardsOf4[:1]))
}

func (v victim) exec(t *testing.T) error {
	t.Helper()
	ops := []Op{
		{Key: v.store.Keyspace().CounterKey(anyFunnel, "a"), Rule: anyFunnel, Units: 1},
		{Key: v.store.Keyspace().CounterKey(anyWindow, "a"), Rule: anyWindow, Units: 1},
	}
	var batches []*Batch
	for i := range ops {
		shard := v.store.Keyspace().Shard("a")
		batches = append(batches, &Batch{Shard: shard, Node: "n", Seq: 1, Ops: ops[i : i+1]})
	}
	var all error
	for i, out := range execAll(v.store, batches) {
		if all = errors.Join(all, out.Err); out.Err == nil {
			checkDecoded(t, out.Reply, nil, batches[i].Ops)
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
	"*4\r\n+1\r\n+17600000000\r\n+5\r\n+ 17600000000:3\r\n", "*2\r\n+e\r\n+WRONGTYPE\r\n", "*2\r\n+e\r\n:1\r\n", "*1\r\n*1\r\n*0\r\n",
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
		f.Add([]byte("*4\r\n+1\r\n+8800000000\r\n+5\r\n+ 8800000000:3\r\n"), uint8(which), true, uint16(0))
		f.Add([]byte("*3\r\n$1\r\n1\r\n$4\r\n1000\r\n$1\r\n7\r\n"), uint8(which), true, uint16(1))
		f.Add([]byte(strings.Repeat("$42\r\na 1760000000123456 5\n1760000000123459 69\r\n", 2)), uint8(which), true, uint16(0))
		f.Add([]byte(strings.Repeat("*2\r\n+3\r\n+1760000000123456\r\n", 6)), uint8(which), true, uint16(0))
	}
	f.Fuzz(func(t *testing.T, lie []byte, which uint8, greets bool, chunk uint16) {
		if len(lie) > bound {
			t.Skip()
		}
		l := &liar{lie: lie, chunk: int(chunk)}
		if greets {
			l.greeting = greeting
		}
		goroutines, bytes := runtime.NumGoroutine(), allocated()
		rdb := l.client(bound)
		checkError(t, newVictim(t, rdb).ask(t, int(which)%victimAsks))
		_ = rdb.Close()
		// At worst a whole pipeline, sent twice, of replies of the allowed size.
		if got, most := allocated()-bytes, uint64(4<<20+60*len(lie)); got > most {
			t.Errorf("%d bytes allocated for a reply of %d: %.80q", got, len(lie), lie)
		}
		poll(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	})
}

// encoded writes a decoded reply the way the scripts do, in lines; short where they may.
func encoded(r Reply, ops []Op, short bool) []string {
	word := map[Fate]string{FateApplied: "a", FateDuplicate: "d", FateLost: "l", FateStale: "s", FateOther: "o"}[r.Fate]
	now := r.Now.Microseconds()
	out := []string{fmt.Sprintf("%s %d %d", word, now, r.Total)}
	for i, s := range r.States {
		var key *limit.KeyError
		kind, content := "f", ""
		if ops[i].Rule == anyFunnel {
			w := toWire(anyFunnel, s.Level)
			content = fmt.Sprintf(" %d %d", now+w.us, w.rem)
		} else {
			kind, content = "w", string(appendBuckets(nil, s.Buckets))
		}
		if s.Converted {
			kind = map[string]string{"f": "g", "w": "v"}[kind]
		}
		if ops[i].Debt > 0 {
			content += fmt.Sprintf(" %d", s.Forgiven)
		}
		switch {
		case errors.As(s.Err, &key) && s.Booked:
			out = append(out, "b "+key.Reason)
		case key != nil:
			out = append(out, "e "+key.Reason)
		case short && s.Gen == 0 && s.Born == now && !s.Converted && ops[i].Debt == 0 && kind == "f":
			out = append(out, content[1:])
		case short && s.Gen == 0 && s.Born == now && !s.Converted && ops[i].Debt == 0:
			out = append(out, content)
		default:
			out = append(out, fmt.Sprintf("%s %d %d%s", kind, s.Gen, s.Born, content))
		}
	}
	return out
}

// mutate spoils a word of a reply, or leaves it as it is.
func mutate(reply string, at, how uint8, text string, number int64) string {
	words := strings.SplitAfter(strings.ReplaceAll(reply, "\n", "\n "), " ")
	i := int(at) % len(words)
	word := strings.TrimRight(words[i], " \n")
	space := words[i][len(word):]
	switch how % 10 {
	case 0:
		return reply
	case 1:
		words[i] = text + space
	case 2:
		words[i] = fmt.Sprint(number) + space
	case 3:
		words[i] = word + fmt.Sprint(number) + space
	case 4:
		words[i] = ""
	case 5:
		words[i] = word
	case 6:
		words[i] = word + text + space
	case 7:
		words = append(words, text)
	case 8:
		words[i] = word + "\n"
	case 9:
		words[i] = new(big.Int).Mul(big.NewInt(number), big.NewInt(number)).String() + space
	}
	return strings.ReplaceAll(strings.Join(words, ""), "\n ", "\n")
}

// FuzzDecodeMutated spoils good replies in one place. What the decoder accepts
// all the same, it must have understood: written again it is what was read.
func FuzzDecodeMutated(f *testing.F) {
	f.Add(uint8(0), int64(1), int64(2), int64(3), int64(4), uint8(0), uint8(0), "", int64(0))
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(1), uint8(6), "0", int64(0))     // a leading zero
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(6), " 1:1", int64(0)) // not in order
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(6), " 4:1", int64(0)) // one bucket twice
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(6), "\n9:1", int64(0))
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(1), "0:0", int64(0)) // nothing before the first
	for i := range uint8(40) {
		f.Add(i, int64(1)<<53, int64(i), int64(1)<<52, int64(6999), i, i/3, " 1:2:3 4:5:6", int64(-1)<<(i%64))
		f.Add(i, int64(i), int64(maxExact), int64(1), int64(7000), i/2, i, "9007199254740993", int64(1)<<53-1)
	}
	f.Fuzz(func(t *testing.T, kind uint8, now, gen, a, b int64, at, how uint8, text string, number int64) {
		ops := []Op{{Key: "f", Rule: anyFunnel, Units: 7, Debt: int64(kind >> 6)}, {Key: "w", Rule: anyWindow}}
		good := Reply{Fate: Fate(kind%4) + 1, Now: time.Duration(now&(maxExact>>1)) * time.Microsecond, Total: a & maxExact}
		if good.Fate <= FateDuplicate {
			good.States = []State{
				{Gen: gen & maxExact, Born: now & (maxExact >> 1), Level: arith.Span{NS: a & (1<<40 - 1), Rem: b & 3}, Converted: kind&2 != 0, Forgiven: b & (ops[0].Debt / 2)},
				{Gen: gen & maxExact, Born: b & maxExact, Converted: kind&8 != 0, Buckets: []Bucket{{a & (maxExact >> 1), b & maxExact, arithOf(anyWindow).Width}, {ID: a&(maxExact>>1) + 1, Units: 1}}},
			}
			if kind&16 != 0 {
				good.States[kind>>5&1] = State{Err: &limit.KeyError{Key: ops[kind>>5&1].Key, Reason: "no"}, Booked: kind&4 != 0}
			}
		}
		before := strings.Join(encoded(good, ops, kind&32 != 0), "\n")
		reply := mutate(before, at, how, text, number)
		r, err := decodeBatch(reply, ops)
		checkDecoded(t, r, err, ops)
		if err != nil && reply == before {
			t.Errorf("%q: %v", before, err)
		}
		if err != nil || len(text) >= 100 { // a long reason is cut short
			return
		}
		long, short := encoded(r, ops, false), encoded(r, ops, true)
		for i, line := range strings.Split(reply, "\n") {
			if line != long[i] && line != short[i] {
				t.Errorf("%q was read as %q", reply, long)
			}
		}
	})
}

// scripted is a hook of go-redis that answers in the place of a server.
type scripted struct{ reply any }

func (scripted) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s scripted) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(interface{ SetVal(any) }).SetVal(s.reply)
		return nil
	}
}
func (scripted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// FuzzTakeReply gives Take replies of the right form with any numbers.
func FuzzTakeReply(f *testing.F) {
	f.Add("1", int64(1760000000123456), int64(5), " 17600000001:3", int64(1), uint8(1))
	f.Add("0", int64(maxExact), int64(maxExact), " 9007199254740991:9007199254740992", int64(10), uint8(2))
	f.Add("1", int64(12), int64(6999), "", int64(1)<<62, uint8(0))
	f.Add("0", int64(1)<<53, int64(-1), " 1:1 2:2", int64(11), uint8(3))
	f.Add("1", int64(3), int64(999999), "1000000", int64(3), uint8(3))
	f.Add("1", int64(3), int64(0), "0", int64(24), uint8(3)) // more than the limit, and still admitted
	f.Fuzz(func(t *testing.T, flag string, a, b int64, list string, n int64, which uint8) {
		rule := everyRule[int(which)%len(everyRule)]
		items := []any{flag, fmt.Sprint(a), fmt.Sprint(b)}
		if rule != anyFunnel {
			items = append(items, list)
		}
		rdb := (&liar{}).client(0)
		defer rdb.Close()
		rdb.AddHook(scripted{items})
		res, err := newVictim(t, rdb).Take(ctx, "k", rule, n)
		if n < 0 {
			if !errors.Is(err, limit.ErrInvalidN) || res.Allowed {
				t.Fatalf("%d units: %s, %v", n, show(res), err)
			}
			return
		}
		checkTaken(t, rule, n, res, err)
		checkError(t, err)
		if err == nil && rule == anyFunnel {
			checkFunnelReply(t, res, a, b)
		}
	})
}

// checkFunnelReply works out from the level in a reply, exactly, what remains.
func checkFunnelReply(t *testing.T, res limit.Result, us, rem int64) {
	t.Helper()
	// us + rem/7000 µs at 7 units per 10^6 µs, of 10 units.
	level := new(big.Rat).Add(big.NewRat(us, 1), big.NewRat(rem, 7000))
	left := new(big.Rat).Sub(big.NewRat(10, 1), level.Mul(level, big.NewRat(7, 1_000_000)))
	if want := floor(left); res.Remaining != want {
		t.Errorf("level %d + %d/7000 µs: %s, want %d", us, rem, show(res), want)
	}
}
