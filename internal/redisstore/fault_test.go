package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// wantClass checks how an error is sorted.
func wantClass(t testing.TB, err error, class Class, reason string) {
	t.Helper()
	if c, r := Classify(err); c != class || r != reason {
		t.Errorf("%v: %v %q, want %v %q", err, c, r, class, reason)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "remote: ") {
		t.Errorf("no prefix: %v", err)
	}
}

// batchAt is batch without asking Redis for its time.
func (x *bookings) batchAt(seq, bucket, n int64) *Batch {
	return &Batch{Node: "n1", Seq: seq, Prev: seq - 1, Ops: []report.Report{
		{Key: x.fk, Rule: x.funnel, Units: n, Ahead: arith.Of(x.funnel).Cost(n)},
		{Key: x.wk, Rule: x.window, Units: n, Buckets: []report.Bucket{{ID: bucket, Units: n}}},
	}}
}

func (b *backend) do(args ...any) {
	b.t.Helper()
	if err := b.rdb.Do(ctx, args...).Err(); err != nil {
		b.t.Fatalf("%v: %v", args, err)
	}
}

// poll waits for a condition on a real server.
func poll(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("the condition has not come true within 10 s")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A reply that is lost after Redis has applied the batch, and a request that is
// lost before: either way the batch counts once, and go-redis has not sent it
// again by itself.
//
// Faults 5, 6: the second copy is recognised; go-redis makes none of its own.
func TestLostOnTheWire(t *testing.T) {
	b := onReal(t)
	p, err := redistest.NewProxy(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := newBookings(t, &backend{t: t, rdb: dial(t, p.Addr())})
	exec(t, x.s, x.batch(1, 0, 1))

	p.CutReplies(1)
	batch := x.batchAt(2, x.b.now()/widthUS(x.window), 1)
	p.CutReplies(1) // the reading of the time took the first
	if err := execAll(x.s, []*Batch{batch})[0].Err; err == nil {
		t.Fatal("the reply was not lost")
	}
	wantReply(t, exec(t, x.s, batch), VerdictDuplicate, 4)

	batch = x.batch(3, 2, 1)
	p.DropRequests(1)
	wantClass(t, execAll(x.s, []*Batch{batch})[0].Err, ClassUnavailable, "closed")
	wantReply(t, exec(t, x.s, batch), VerdictApplied, 6)
	x.wantUsed(3)

	before, _ := b.scriptCalls()
	p.CutReplies(1)
	l := &Limiter{x.s}
	if _, err := l.Take(ctx, "k", x.funnel, 1); err == nil {
		t.Fatal("the reply was not lost")
	}
	if after, _ := b.scriptCalls(); after != before+1 {
		t.Errorf("one Take executed %d scripts", after-before)
	}
}

// scriptCalls returns how often Redis was asked for scripts, by hash and by text.
func (b *backend) scriptCalls() (evalsha, eval int) {
	b.t.Helper()
	for line := range strings.Lines(b.rdb.Info(ctx, "commandstats").Val()) {
		_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &evalsha)
		_, _ = fmt.Sscanf(line, "cmdstat_eval:calls=%d", &eval)
	}
	return evalsha, eval
}

// A pipeline of which Redis has one script and not the other.
//
// Fault 21: only the calls that failed are sent again.
func TestOnlyMissingScriptsAreSentAgain(t *testing.T) {
	b := onReal(t)
	s := b.store()
	if err := b.rdb.ScriptLoad(ctx, scriptBeat.source).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Beat(ctx, "n1", time.Second, []int{0, 0, 0}, BeatOptions{}); err != nil || got.Nodes != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if evalsha, eval := b.scriptCalls(); evalsha != 3 || eval != 2 {
		t.Errorf("%d calls by hash and %d by text, want 3 and 2", evalsha, eval)
	}
}

// A reply that has been read before the rest of a pipeline is lost is good;
// go-redis reports all of the pipeline as failed.
//
// Fault 9: what was answered before the cut is not asked again.
func TestReplyBeforeTheCut(t *testing.T) {
	lost := errors.New("the connection is gone")
	cmd := once{redis.NewCmd(ctx, "x")}
	c := new(call)
	if c.finish(cmd, lost); c.err != lost {
		t.Errorf("without a reply: %v", c.err)
	}
	cmd.SetVal([]any{"1"})
	if c.finish(cmd, lost); c.err != nil || c.val == nil {
		t.Errorf("with a reply: %v, %v", c.val, c.err)
	}
	if c.finish(cmd, reply("OOM no")); c.err == nil {
		t.Error("an error of Redis was ignored")
	}
}

// A cluster of real masters: every shard's keys are in one slot, it is known where, pipelines
// go to all masters, and what has moved is followed.
//
// Faults 19, 50: a slot that has moved is followed; every key of a shard is in one slot.
func TestCluster(t *testing.T) {
	k := redistest.StartCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: k.Addrs(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	o := Options{Shards: 16, CommandTimeout: 5 * time.Second}
	s, err := NewStore(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	servers := s.Servers(ctx) // it is the first call of this client
	for shard := range 16 {
		if owner := ownerOf(t, k, s.Keyspace().SeqKey(shard, "n1")); servers[shard] != owner.Addr() {
			t.Errorf("shard %d is on %s, not %s", shard, owner.Addr(), servers[shard])
		}
	}
	rule := funnel(t, 1000, 1, time.Hour)
	for seq := int64(1); seq <= 3; seq++ {
		if seq == 2 { // one of the masters forgets the scripts
			dial(t, k.Masters[0].Addr()).ScriptFlush(ctx)
		}
		if seq == 3 {
			slot, err := k.Slot(s.Keyspace().SeqKey(0, "n1"))
			owner := ownerOf(t, k, s.Keyspace().SeqKey(0, "n1"))
			if err := errors.Join(err, k.Migrate(slot, k.Masters[(slices.Index(k.Masters, owner)+1)%3], nil)); err != nil {
				t.Fatal(err)
			}
		}
		var batches []*Batch
		shards := make([]int, 16)
		for shard := range shards {
			shards[shard] = shard
			batch := &Batch{Shard: shard, Node: "n1", Seq: seq, Prev: seq - 1}
			for i := range 3 {
				key := string(s.Keyspace().appendShard(nil, shard)) + fmt.Sprintf("f:1:f:k:}%d", i)
				batch.Ops = append(batch.Ops, report.Report{Key: key, Rule: rule, Units: 1, Ahead: arith.Of(rule).Cost(1)})
			}
			batches = append(batches, batch)
		}
		for shard, out := range execAll(s, batches) {
			if out.Err != nil || out.Reply.Verdict != VerdictApplied || totalOf(s.rdb, s.keys.SeqKey(shard, "n1")) != 3*seq {
				t.Fatalf("seq %d, shard %d: %+v", seq, shard, out)
			}
		}
		beat, err := s.Beat(ctx, "n1", time.Second, shards, BeatOptions{})
		if err != nil || beat.Nodes != 1 || beat.Seqs[0] != seq || beat.Seqs[15] != seq {
			t.Fatalf("beat %d: %+v, %v", seq, beat, err)
		}
	}
	for _, key := range []string{"", "}x", "{1}{2}"} {
		log := slidingLog(t, 5, time.Hour)
		two, _, err := s.Take(ctx, Book, Ask{Counter: s.keys.CounterKey(rule, key), Rule: rule, Units: 1, Own: 1}, Ask{Counter: s.keys.CounterKey(log, key), Rule: log, Units: 1, Own: 1})
		if err != nil || !two.Booked || two.Answers[1].Used() != 1 {
			t.Errorf("two rules of one key: %+v, %v", two, err)
		}
	}
}

// ownerOf returns the master that serves a key.
func ownerOf(t *testing.T, k *redistest.Cluster, key string) *redistest.Server {
	t.Helper()
	slot, err := k.Slot(key)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := k.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	return owner
}
