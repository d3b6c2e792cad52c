package redisstore

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// The connection breaks after any number of bytes of a pipeline of eight
// scripts, on the way there or on the way back. Redis has executed the first
// few; sent again, these are recognised, and only the others are applied.
//
// Fault 9: whatever the byte, every batch counts once.
func TestPipelineTornAtEveryByte(t *testing.T) {
	b := onReal(t)
	p, err := redistest.NewProxy(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const shards = 8
	s, err := NewStore(dial(t, p.Addr()), Options{Shards: shards, CommandTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	rule := funnel(t, 1000, 1, time.Hour)
	seq := int64(0)
	batches := func() (list []*Batch) {
		seq++
		for shard := range shards {
			key := string(s.Keyspace().appendShard(nil, shard)) + "f:1:f:k:x"
			list = append(list, &Batch{Shard: shard, Node: "n1", Seq: seq, Prev: seq - 1, Ops: []report.Report{
				{Key: key, Rule: rule, Units: 1, Ahead: arith.Of(rule).Cost(1)},
			}})
		}
		return list
	}
	execAll(s, batches()) // the script is known from here on
	seenThere, seenBack := map[int]bool{}, map[int]bool{}
	for after := 0; len(seenThere) <= shards && after < 4000; after += 37 {
		list := batches()
		p.Tear(after)
		if n := answered(execAll(s, list)); n != 0 && n != shards {
			t.Fatalf("%d batches were answered although only %d bytes arrived", n, after)
		}
		seenThere[resend(t, b, s, list, seq)] = true
	}
	for after := 1; len(seenBack) <= shards && after < 2000; after += 19 {
		list := batches()
		p.Tear(-after)
		seenBack[answered(execAll(s, list))] = true
		// A client that has all replies keeps the connection, and may write to it
		// before it learns that it was broken.
		for since := time.Now(); p.Conns() > 0; runtime.Gosched() {
			if time.Since(since) > 10*time.Second {
				t.Fatal("the proxy kept a connection that it should have broken")
			}
		}
		if n := resend(t, b, s, list, seq); n != shards {
			t.Fatalf("%d of %d batches had been applied before their replies were lost", n, shards)
		}
	}
	if len(seenThere) != shards+1 || len(seenBack) != shards+1 {
		t.Errorf("broken after %d and %d different numbers of scripts, want all from 0 to %d", len(seenThere), len(seenBack), shards)
	}
}

func answered(out []Outcome) (n int) {
	for _, o := range out {
		if o.Err == nil {
			n++
		}
	}
	return n
}

// resend sends batches again and returns how many had been applied: the first
// ones of the pipeline, for Redis executes in order.
func resend(t *testing.T, b *backend, s *Store, list []*Batch, total int64) int {
	t.Helper()
	var verdicts []Verdict
	for i, o := range execAll(s, list) {
		if o.Err != nil || totalOf(b.rdb, s.keys.SeqKey(list[i].Shard, list[i].Node)) != total {
			t.Fatalf("batch %d of %d units: %+v", i, total, o)
		}
		verdicts = append(verdicts, o.Reply.Verdict)
	}
	applied := slices.Index(verdicts, VerdictApplied)
	if applied < 0 {
		applied = len(verdicts)
	}
	for i, v := range verdicts {
		if want := map[bool]Verdict{true: VerdictDuplicate, false: VerdictApplied}[i < applied]; v != want {
			t.Fatalf("fates %v", verdicts)
		}
	}
	return applied
}
