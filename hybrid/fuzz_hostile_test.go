package hybrid_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// liar is a hook of go-redis that spoils what Redis says, as dice tell it to: every number may be any other
// that the decoder lets pass. It also answers in the place of Redis, which hears nothing then.
type liar struct {
	mu     sync.Mutex
	honest bool
	dice   func() byte
	texts  []string // true replies to batches
	lists  []any    // and to heartbeats
	told   int      // lies
}

func (l *liar) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *liar) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return l.answer([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (l *liar) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return l.answer(cmds, func() error { return next(ctx, cmds) })
	}
}

// lies are what a server may say instead of an answer.
type lie string

func (s lie) Error() string { return string(s) }
func (lie) RedisError()     {}

var lies = []lie{"NOSCRIPT no", "LOADING", "READONLY no", "NOAUTH no", "WRONGTYPE no", "MOVED 1 127.0.0.1:1", "OOM no", "ERR what", "BUSY", ""}

func (l *liar) answer(cmds []redis.Cmder, ask func() error) (err error) {
	l.mu.Lock()
	honest := l.honest || l.dice()%2 == 0
	alone := !honest && l.dice()%8 == 0 && len(l.texts) > 0 && len(l.lists) > 0
	l.mu.Unlock()
	if !alone {
		err = ask()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range cmds {
		c, ok := cmd.(interface {
			redis.Cmder
			SetVal(v any)
			Val() any
		})
		if !ok || c.Err() != nil || !strings.HasPrefix(fmt.Sprint(c.Args()[0]), "eval") {
			continue
		}
		said := c.Val()
		if alone {
			said = any(l.texts[int(l.dice())%len(l.texts)])
			if strings.Contains(fmt.Sprint(c.Args()[2:]...), ":nodes:") {
				said = l.lists[int(l.dice())%len(l.lists)]
			}
		} else if text, ok := said.(string); ok {
			l.texts = append(l.texts, text)
		} else {
			l.lists = append(l.lists, said)
		}
		if honest {
			continue
		}
		l.told++
		if l.dice()%8 == 0 {
			no := lies[int(l.dice())%len(lies)]
			if c.SetErr(no); err == nil {
				err = no
			}
			continue
		}
		c.SetVal(l.forge(said))
	}
	return err
}

var words = regexp.MustCompile(`[ \n:]*[^ \n:]*`)

// forge returns a reply with some numbers changed, or with a word that is another letter, missing, or there twice.
func (l *liar) forge(said any) any {
	if list, ok := said.([]any); ok {
		list = append([]any(nil), list...)
		i := int(l.dice()) % len(list)
		list[i] = l.number(fmt.Sprint(list[i]))
		return list
	}
	text, _ := said.(string)
	all := words.FindAllString(text, -1)
	for range l.dice() % 4 {
		i := (int(l.dice())<<8 | int(l.dice())) % len(all)
		sep := all[i][:len(all[i])-len(strings.TrimLeft(all[i], " \n:"))]
		switch l.dice() % 32 {
		case 0, 1:
			all[i] = sep + string("adlsoefgwvb"[l.dice()%11])
		case 2:
			all[i] = ""
		case 3:
			all[i] += all[i]
		default:
			all[i] = sep + l.number(all[i][len(sep):])
		}
	}
	return strings.Join(all, "")
}

// number returns another number in the place of a word that is one.
func (l *liar) number(word string) string {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return word
	}
	now := time.Now().UnixMicro()
	palette := []int64{n + 1, n - 1, 2 * n, n / 2, 0, 1, 2, 10, 1000, 1_000_000, 1 << 31, 1 << 52, 1<<53 - 1, 1 << 53, math.MaxInt64, -1,
		now, now + 1, now - 3_600_000_000, now + 3_600_000_000, now / 100_000, now/100_000 + 7, now / 8_640_000_000}
	return strconv.FormatInt(palette[int(l.dice())%len(palette)], 10)
}

// hostileRules are of every kind that is shared, from short to long.
var hostileRules = []*limit.Rule{
	longTen, longFunnel,
	limit.Must(limit.SlidingWindow("short", 10, time.Second)),
	limit.Must(limit.TokenBucket("quick", 7, time.Second, 10)),
	limit.Must(limit.FixedWindow("fixed", 10, time.Minute)),
	limit.Must(limit.SlidingWindowBuckets("big", arith.MaxUnits, 24*time.Hour, 2)),
}

// FuzzHostileRedis lets a limiter talk to a Redis that lies, and then to an
// honest one. The lies may make it refuse or admit wrongly. They must not make
// it panic, hang, answer nonsense, lose count of its own units, or grow; and
// once Redis is honest they must be overcome.
//
// CI runs it 1000 times.
func FuzzHostileRedis(f *testing.F) {
	for i := range byte(30) {
		f.Add(bytes.Repeat([]byte{i, 7 * i, 3, i + 1, 5, 2 * i, 251 - i}, 12), bytes.Repeat([]byte{i, i + 1, 9, i / 2, 13}, 30))
	}
	f.Fuzz(func(t *testing.T, asks, lies []byte) {
		inBubble(t, func(t *testing.T, w *world) { playHostile(t, w, asks[:min(len(asks), 60)], lies) })
	})
}

func playHostile(t *testing.T, w *world, asks, lies []byte) {
	used := 0
	liar := &liar{dice: func() byte {
		if len(lies) == 0 {
			return 0
		}
		used++
		return lies[used%len(lies)] + byte(used/len(lies))
	}}
	rdb := w.client(new(network), nil)
	rdb.AddHook(liar)
	l := newLimiter(t, rdb, hybrid.Options{MaxKeys: 64})
	goroutines := runtime.NumGoroutine()
	for ; len(asks) >= 3; asks = asks[3:] {
		key, rule := fmt.Sprint("k", asks[0]%3), hostileRules[int(asks[0]/3)%len(hostileRules)]
		ns := []int64{1, 1, 2, 5, 10, 11, 0, 1 << 53, 1<<53 - 1, math.MaxInt64, -1, math.MinInt64}
		n := ns[int(asks[1])%len(ns)]
		res := l.Take(key, rule, n)
		switch {
		case res.Remaining < 0 || res.Remaining > rule.Limit() || res.Limit != rule.Limit(),
			res.RetryAfter < 0 || res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0),
			(n < 0 || n > rule.Limit()) && (res.Allowed || res.RetryAfter != limit.Never),
			n == 0 && !res.Allowed:
			t.Fatalf("%v, n = %d: %+v", rule, n, res)
		}
		conserved(t, l, false)
		steps := []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, time.Second, 6 * time.Second}
		time.Sleep(steps[int(asks[2])%len(steps)])
		synctest.Wait()
		if got := runtime.NumGoroutine(); got > goroutines+60 { // a few for each connection
			t.Fatalf("%d goroutines, then %d", goroutines, got)
		}
	}
	liar.mu.Lock()
	liar.honest = true
	if strings.Contains(t.Name(), "seed#") && liar.told < 3 {
		t.Errorf("only %d lies", liar.told)
	}
	liar.mu.Unlock()
	time.Sleep(45 * time.Second) // the longest back-off, the quarantine, half a short bucket
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	for _, rule := range hostileRules { // a key that looked unused has been forgotten
		if err := l.Preload(ctx, []string{"k0", "k1", "k2"}, rule); err != nil {
			t.Fatalf("preload: %v", err)
		}
	}
	for range 2 { // what the first one finds missing in Redis is reported again by the second
		if err := l.Flush(ctx); err != nil {
			t.Fatalf("flush: %v (%v, %+v)", err, l.State(), l.Figures())
		}
		time.Sleep(time.Second)
	}
	wantMode(t, l, hybrid.Synced)
	conserved(t, l, true)
	if live := l.Figures().Keys; live > int64(3*len(hostileRules)) {
		t.Fatalf("%d counters", live)
	}
	for _, rule := range hostileRules {
		for i := range 3 {
			key := fmt.Sprint("k", i)
			if got, is := rule.Limit()-l.Peek(key, rule).Remaining, w.used(key, rule); got < is-1 || got > is+1 { // their clocks show whole µs
				t.Fatalf("%v: %q has %d units, in Redis %d: %+v, %+v", rule, key, got, is, l.Peek(key, rule), l.Figures())
			}
		}
	}
}
