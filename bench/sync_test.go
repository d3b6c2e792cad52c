package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

const (
	pipelineKeys = 500    // in one pipeline, in batches of any size
	activeKeys   = 10_000 // in use, of which each pipeline carries the next ones
)

// keyStore names the counters of one shard, so that a batch may hold any of
// them.
type keyStore struct {
	*redisstore.Store
	keys []string // as users call them
	ctrs []string // as Redis does
}

func newKeyStore(b *testing.B, rdb redis.UniversalClient, rule *limit.Rule) keyStore {
	b.Helper()
	s, err := redisstore.NewStore(rdb, redisstore.Options{Shards: 1, CommandTimeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	ks := keyStore{Store: s, keys: keyNames(activeKeys)}
	for _, k := range ks.keys {
		ks.ctrs = append(ks.ctrs, s.Keyspace().CounterKey(rule, k))
	}
	return ks
}

// sender books one unit on each of the next keys, in batches of a given size
// that go out in one pipeline. Each place in the pipeline is a node of its own,
// as in hybrid it is a shard of its own: with a ledger that is read and written.
type sender struct {
	keyStore
	rule    *limit.Rule
	batches []*redisstore.Batch
	next    int           // key
	now     time.Duration // Redis' time, as of the last answer
}

// senders counts those ever made: each has nodes of its own.
var senders int

func newSender(s keyStore, rule *limit.Rule, size int) *sender {
	senders++
	out := &sender{keyStore: s, rule: rule}
	for i := range pipelineKeys / size {
		out.batches = append(out.batches, &redisstore.Batch{
			Node: fmt.Sprintf("sender%d-%d", senders, i), Ops: make([]report.Report, size),
		})
	}
	return out
}

// fill readies the pipeline. age says in how old a bucket of a window the
// units were admitted.
func (s *sender) fill(age int64) {
	for _, b := range s.batches {
		b.Seq, b.Prev = b.Seq+1, b.Seq
		for i := range b.Ops {
			op := report.Report{Key: s.ctrs[s.next], Rule: s.rule, Units: 1}
			if arith.Of(s.rule).Algorithm == arith.TokenBucket {
				op.Ahead = arith.Of(s.rule).Cost(1)
			} else {
				op.Buckets = []report.Bucket{{ID: int64(s.now/arith.Of(s.rule).Width) - age, Units: 1}}
			}
			b.Ops[i] = op
			s.next = (s.next + 1) % len(s.ctrs)
		}
	}
}

func (s *sender) send(b *testing.B, age int64) {
	b.Helper()
	s.fill(age)
	out, _ := s.Exec(context.Background(), s.batches, nil)
	for _, o := range out {
		if o.Err != nil || o.Reply.Verdict != redisstore.VerdictApplied {
			b.Fatalf("%v, %v", o.Reply.Verdict, o.Err)
		}
		for _, st := range o.Reply.States {
			if st.Err != nil {
				b.Fatal(st.Err)
			}
		}
		s.now = o.Reply.Now
	}
}

// BenchmarkSync: what it costs Redis to book a unit on a key. An iteration is
// one pipeline of 500 keys, all of them with a full history: batch-n sends them n
// to a script call, as hybrid does; take is the comparison: one script call per
// key, which decides and books, as remote.Limiter does, also in one pipeline; plain
// only reads and writes a value as long, with GET and SET, and says how fast this
// Redis is at this time.
//
// redis-us/key is the time that Redis spends in the script, cpu-us/key all that
// its process uses: reading, parsing and answering as well.
func BenchmarkSync(b *testing.B) {
	j := startRedis(b)
	for _, rule := range redisRules {
		store := newKeyStore(b, j.rdb, rule)
		fillUp(b, store, rule)
		for _, size := range []int{1, 10, 100, 500} {
			b.Run(fmt.Sprintf("%v/batch-%d", arith.Of(rule).Algorithm, size), func(b *testing.B) {
				s := newSender(store, rule, size)
				s.send(b, 0) // to learn the time
				measureRedis(b, j, func() { s.send(b, 0) })
			})
		}
		b.Run(arith.Of(rule).Algorithm.String()+"/take", func(b *testing.B) {
			calls := takeCalls(b, j, rule, store.keys)
			next := 0
			measureRedis(b, j, func() {
				sendAll(b, j.rdb, calls[next:next+pipelineKeys])
				next = (next + pipelineKeys) % len(calls)
			})
		})
		b.Run(arith.Of(rule).Algorithm.String()+"/plain", func(b *testing.B) {
			calls := plainCalls(b, j, store.ctrs)
			next := 0
			measureRedis(b, j, func() {
				sendAll(b, j.rdb, calls[next:next+2*pipelineKeys])
				next = (next + 2*pipelineKeys) % len(calls)
			})
			b.ReportMetric(float64(j.read(b).inPlain.Microseconds())/float64(b.N)/pipelineKeys, "redis-us/key")
		})
	}
}

// plainCalls returns two commands for each counter: to read, and to write one as long
// that nobody uses.
func plainCalls(b *testing.B, j judge, ctrs []string) (calls [][]any) {
	b.Helper()
	value, err := j.rdb.Get(context.Background(), ctrs[0]).Result()
	if err != nil {
		b.Fatal(err)
	}
	var sets [][]any // first, so that there is something to get
	for _, ctr := range ctrs {
		set := []any{"SET", "plain" + ctr, value, "PX", 600_000}
		sets, calls = append(sets, set), append(calls, []any{"GET", "plain" + ctr}, set)
	}
	sendAll(b, j.rdb, sets)
	return calls
}

// fillUp gives each key units in every bucket, oldest first.
func fillUp(b *testing.B, store keyStore, rule *limit.Rule) {
	b.Helper()
	s := newSender(store, rule, 100)
	s.send(b, 0)
	for age := arith.Of(rule).Kept; age >= 0; age-- {
		for range activeKeys / pipelineKeys {
			s.send(b, int64(age))
		}
	}
}

func measureRedis(b *testing.B, j judge, iteration func()) {
	iteration()
	j.reset(b)
	before := j.read(b)
	for b.Loop() {
		iteration()
	}
	took := b.Elapsed()
	after := j.read(b)
	keys := float64(b.N) * pipelineKeys
	b.ReportMetric(float64(after.inScript.Microseconds())/keys, "redis-us/key")
	b.ReportMetric(float64((after.cpu-before.cpu).Microseconds())/keys, "cpu-us/key")
	b.ReportMetric((after.in-before.in)/keys, "in-B/key")
	b.ReportMetric((after.out-before.out)/keys, "out-B/key")
	b.ReportMetric(keys/took.Seconds(), "keys/s")
}

var errCaptured = errors.New("not sent")

// capture is a hook that keeps what would be sent.
type capture struct {
	redis.Hook // of these only ProcessHook is called
	args       [][]any
}

func (c *capture) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *capture) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *capture) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		c.args = append(c.args, cmd.Args())
		return errCaptured
	}
}

// takeCalls returns the script call by which remote.Limiter takes one unit, for
// each key: the limiter itself sends one at a time.
func takeCalls(b *testing.B, j judge, rule *limit.Rule, keys []string) [][]any {
	b.Helper()
	l, err := remote.New(j.rdb, remote.Options{Shards: 1})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.Take(context.Background(), keys[0], rule, 1); err != nil { // loads the script
		b.Fatal(err)
	}
	counted := redis.NewClient(&redis.Options{Addr: j.server.Addr()})
	defer counted.Close()
	var c capture
	counted.AddHook(&c)
	if l, err = remote.New(counted, remote.Options{Shards: 1}); err != nil {
		b.Fatal(err)
	}
	for _, k := range keys {
		if _, err := l.Take(context.Background(), k, rule, 1); !errors.Is(err, errCaptured) {
			b.Fatal(err)
		}
	}
	if len(c.args) != len(keys) {
		b.Fatalf("%d calls for %d keys", len(c.args), len(keys))
	}
	return c.args
}

func sendAll(b *testing.B, rdb *redis.Client, calls [][]any) {
	b.Helper()
	pipe := rdb.Pipeline()
	for _, args := range calls {
		pipe.Do(context.Background(), args...)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		b.Fatal(err)
	}
}
