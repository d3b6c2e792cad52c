package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// An exchange allocates as much for 300 keys as for 100: what it says and what it hears
// are texts in one piece, and so are the states and their buckets.
func TestExecAllocatesNothingPerKey(t *testing.T) {
	for _, rule := range []*limit.Rule{funnel(t, 1000, 1000, time.Minute), sliding(t, 1000, time.Minute, 10)} {
		allocations := func(ops int) float64 {
			b := &Batch{Node: "n1", Seq: 1, Ops: make([]report.Report, ops)}
			reply := "a 1760000000123456" + strings.Repeat("\n1760000000123456 0", ops)
			if arith.Of(rule).Width > 0 {
				reply = "a 1760000000123456" + strings.Repeat("\n 293333333:7:1 293333334:1:9", ops)
			}
			rdb := redis.NewClient(options("127.0.0.1:1"))
			defer rdb.Close()
			rdb.AddHook(redistest.Answers(reply))
			s := limit.Must(NewStore(rdb, Options{Shards: 1}))
			for i := range b.Ops {
				b.Ops[i] = report.Report{Key: s.Keyspace().CounterKey(rule, fmt.Sprint(i)), Rule: rule, Units: 3, Ahead: arith.Of(rule).Cost(3)}
				if arith.Of(rule).Width > 0 {
					b.Ops[i].Ahead, b.Ops[i].Buckets = arith.Span{}, []report.Bucket{{ID: 293333334, Units: 3, Last: time.Second}}
				}
			}
			batches := []*Batch{b}
			return testing.AllocsPerRun(100, func() {
				if out := execAll(s, batches); out[0].Err != nil || len(out[0].Reply.States) != ops {
					t.Fatalf("%+v", out[0])
				}
			})
		}
		// The pool of texts may be emptied in between.
		if few, many := allocations(100), allocations(300); many > few+20 || few > 60 {
			t.Errorf("%v: %v allocations for 100 keys, %v for 300", rule, few, many)
		}
	}
}
