package redisstore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recorder is a hook of a client that has scripts read a fixed time, and writes down
// what is sent and answered.
type recorder struct {
	t   *testing.T
	at  int64 // µs
	log *strings.Builder
}

func (recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.sent(cmd)
		err := next(ctx, cmd)
		r.answered(cmd)
		return err
	}
}

func (r recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			r.sent(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.answered(cmd)
		}
		return err
	}
}

// sent writes a command down, with the name of its script instead of the hash, which
// depends on each word of the text, and sends the text.
func (r recorder) sent(cmd redis.Cmder) {
	args := cmd.Args()
	for name, s := range everyScript {
		if args[0] == "evalsha" && args[1] == s.sha {
			args[0] = "eval"
			args[1] = replaced(r.t, s.source, "local t = redis.call('TIME')\n", fmt.Sprintf("local t = { '%d', '%d' }\n", r.at/1e6, r.at%1e6))
			fmt.Fprintf(r.log, "> %s %v keys\n", name, args[2])
			for _, arg := range args[3:] {
				switch a := arg.(type) { // as go-redis writes it
				case *string:
					arg = *a
				case bool:
					arg = map[bool]int{true: 1}[a]
				}
				fmt.Fprintf(r.log, ">  %q\n", fmt.Sprint(arg))
			}
		}
	}
}

func (r recorder) answered(cmd redis.Cmder) {
	if c, ok := cmd.(interface{ Val() any }); ok && cmd.Name() == "eval" {
		fmt.Fprintf(r.log, "< %q\n", c.Val())
	}
}

// What is kept in Redis, asked of it and answered by it is what all processes that share
// it go by, of whatever release. This test sees to it that nobody changes that without
// noticing.
func TestGolden(t *testing.T) {
	const file = "testdata/golden.txt"
	b := onReal(t)
	r := recorder{t: t, at: epoch.UnixMicro(), log: &strings.Builder{}}
	b.rdb.AddHook(r)
	goldenNames(t, r.log)
	goldenCalls(t, b, r)
	goldenBatches(t, b, r)
	got := r.log.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	is, wants := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(is), len(wants)) {
		if is[i] != wants[i] {
			t.Fatalf("%s, line %d\nis    %s\nwants %s\nProcesses of two releases would no longer understand each other: raise the version of the layout "+
				"in keyspace.go (Keyspace.Layout) if the one that it has was ever released. Then run this test with -update.", file, i+1, is[i], wants[i])
		}
	}
	if len(is) != len(wants) {
		t.Fatalf("%s has %d lines, wants %d: see keyspace.go and -update", file, len(is), len(wants))
	}
}

func goldenNames(t *testing.T, w *strings.Builder) {
	for _, k := range []Keyspace{{prefix: DefaultKeyPrefix, shards: 1}, {prefix: "app", shards: 64}} {
		fmt.Fprintf(w, "# %s, prefix %q\n%s\n%s\n%s\n%s\n%s\n%s\n", k.Layout(), k.prefix, k.LayoutsKey(), k.NodesKey(), k.ChannelKey(), k.NoticeChannel("id7"), k.EchoChannel("id7", "n1"), k.SeqKey(k.Shards()-1, "n1"))
		for _, rule := range []*limit.Rule{funnel(t, 10, 7, time.Second), sliding(t, 10, time.Minute, 10), fixed(t, 10, time.Minute), slidingLog(t, 10, time.Minute)} {
			for _, key := range []string{"", "user:1", "a}b{c", strings.Repeat("x", MaxKeyBytes+1)} {
				fmt.Fprintf(w, "%q\n", k.CounterKey(rule, key))
			}
		}
	}
}

// stored writes down all there is in Redis, and removes it.
func (r recorder) stored(b *backend, what string) {
	fmt.Fprintf(r.log, "# kept after %s\n", what)
	keys := b.keys()
	slices.Sort(keys)
	for _, key := range keys {
		if b.rdb.Type(ctx, key).Val() == "zset" {
			fmt.Fprintf(r.log, "= %q %v\n", key, b.rdb.ZRangeWithScores(ctx, key, 0, -1).Val())
			continue
		}
		fmt.Fprintf(r.log, "= %q %q\n", key, b.get(key))
	}
	b.rdb.FlushAll(ctx)
}

func goldenCalls(t *testing.T, b *backend, r recorder) {
	s := b.store()
	ask := func(rule *limit.Rule, n int64) Ask {
		return Ask{Counter: s.keys.CounterKey(rule, "k"), Rule: rule, Units: n, Own: n}
	}
	rules := []*limit.Rule{funnel(t, 10, 7, time.Second), sliding(t, 10, time.Minute, 10), fixed(t, 10, time.Minute), slidingLog(t, 10, time.Minute)}
	for _, rule := range rules {
		fmt.Fprintf(r.log, "# calls under %v\n", rule)
		_, _, errTake := s.Take(ctx, Book, ask(rule, 3))
		_, _, errMost := s.Take(ctx, Most, ask(rule, 5))
		_, _, errBack := s.Refund(ctx, "k", rule, 2, nil)
		_, errSet := s.Renew(ctx, "k", rule, 4)
		for _, err := range []error{errTake, errMost, errBack, errSet} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.stored(b, rule.String())
	}
	var asks []Ask
	for _, rule := range rules {
		asks = append(asks, ask(rule, 2))
	}
	if _, _, err := s.Take(ctx, Book, asks...); err != nil {
		t.Fatal(err)
	}
	r.stored(b, "all together")
	fmt.Fprintln(r.log, "# calls that tell the generations")
	for _, mode := range []TakeMode{BookState, LookState} {
		if _, _, err := s.Take(ctx, mode, asks[0]); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Take(ctx, mode, asks[:3]...); err != nil {
			t.Fatal(err)
		}
	}
	r.stored(b, "calls that tell the generations")
}

func goldenBatches(t *testing.T, b *backend, r recorder) {
	s := b.store()
	f, w, x := funnel(t, 10, 7, time.Second), sliding(t, 10, time.Minute, 10), fixed(t, 10, time.Minute)
	name := s.Keyspace().CounterKey
	id := r.at / widthUS(w)
	bucket := func(units int64) []report.Bucket {
		return []report.Bucket{{ID: id, Units: units, Last: 1500 * time.Nanosecond}}
	}
	b.set(name(f, "broken"), "nonsense")
	ops := []report.Report{
		{Key: name(f, "k"), Rule: f, Units: 3, Ahead: arith.Of(f).Cost(2)},
		{Key: name(w, "k"), Rule: w, Units: 3, Buckets: bucket(3)},
		{Key: name(x, "k"), Rule: x, Units: 1, Buckets: []report.Bucket{{ID: r.at / widthUS(x), Units: 1}}},
		{Key: name(f, "broken"), Rule: f, Units: 5},
		{Key: name(f, "read"), Rule: f},
		{Key: name(f, "debt"), Rule: f, Units: 20, Debt: 18, Ceiling: arith.Of(f).Full},
		{Key: name(f, "raised"), Rule: f, Restore: true, Known: report.State{Gen: 7, Born: 9, Level: arith.Of(f).Cost(4)}},
		{Key: name(w, "raised"), Rule: w, Restore: true, Known: report.State{Gen: 7, Born: 9, Buckets: bucket(4)}},
	}
	back := []report.Report{
		{Key: name(f, "k"), Rule: f, Units: 1, Back: arith.Of(f).Cost(2), BackTop: arith.Of(f).Full},
		{Key: name(w, "k"), Rule: w, BackBuckets: bucket(2)},
		{Key: name(f, "raised"), Rule: funnel(t, 20, 9, time.Second), Units: 1},
		{Key: name(w, "raised"), Rule: sliding(t, 10, 2*time.Minute, 10), Units: 1, Buckets: []report.Bucket{{ID: id / 2, Units: 1}}},
	}
	for _, batch := range []*Batch{
		{Node: "n1", Seq: 1, Nonce: 0xabc, Ops: ops}, {Node: "n1", Seq: 1, Nonce: 0xabc, Ops: ops}, {Node: "n1", Seq: 1, Nonce: 0xdef, Ops: ops},
		{Node: "n1", Seq: 2, Prev: 1, Nonce: 0xdef, Ops: back}, {Node: "n1", Seq: 1, Nonce: 0xabc}, {Node: "n1", Seq: 9, Prev: 8}, {Node: "n1", Seq: 9, Prev: 8, Accept: true},
	} {
		exec(t, s, batch)
	}
	for _, o := range []BeatOptions{{}, {Offer: "first1"}, {Offer: "second2"}} {
		if _, err := s.Beat(ctx, "n1", time.Second, []int{0}, o); err != nil {
			t.Fatal(err)
		}
	}
	r.stored(b, "batches and a heartbeat")
}
