package redisstore

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// After SCRIPT FLUSH, as after a restart, all batches of a pipeline are sent
// again, and applied once each.
//
// Fault 21: every batch of the pipeline is applied once.
func TestNoScriptInPipeline(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := limit.Must(NewStore(b.rdb, Options{Shards: 8, CommandTimeout: 5 * time.Second}))
		rule := funnel(t, 1000, 1, time.Hour)
		for round := int64(1); round <= 4; round++ {
			if err := b.rdb.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if round == 3 { // some scripts are there, others are not
				exec(t, s, &Batch{Shard: 7, Node: "other", Seq: 1})
			}
			var batches []*Batch
			for shard := range 8 {
				key := string(s.Keyspace().appendShard(nil, shard)) + "f:1:f:k:x"
				batches = append(batches, &Batch{Shard: shard, Node: "n1", Seq: round, Prev: round - 1, Ops: []report.Report{
					{Key: key, Rule: rule, Units: 1, Ahead: arith.Of(rule).Cost(1)},
				}})
			}
			for i, o := range execAll(s, batches) {
				if o.Err != nil || o.Reply.Verdict != VerdictApplied || roundUp(rule, o.Reply.States[0].Level) != round {
					t.Fatalf("round %d, shard %d: %+v", round, i, o)
				}
			}
		}
	})
}
