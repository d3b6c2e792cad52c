//go:build unix

package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// BenchmarkExec measures what reporting a key costs in processor time, here and in a
// real redis-server. The calls come one after another, or paced: at the rate of a busy
// node, where whatever else runs has emptied the caches in between.
func BenchmarkExec(b *testing.B) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.Funnel("f", 1_000_000, 1_000_000, time.Minute)),
		limit.Must(limit.SlidingWindow("s", 1_000_000, time.Minute)),
	} {
		for _, pause := range []time.Duration{0, 20 * time.Millisecond} {
			for _, ops := range []int{1, 180} {
				b.Run(fmt.Sprintf("%c/pause=%v/keys=%d", Letters[rule.Algorithm()], pause, ops), func(b *testing.B) {
					benchExec(b, rule, pause, ops)
				})
			}
		}
	}
}

func benchExec(b *testing.B, rule *limit.Rule, pause time.Duration, ops int) {
	rdb := redis.NewClient(options(redistest.Start(b).Addr()))
	b.Cleanup(func() { rdb.Close() })
	s, err := NewStore(rdb, Options{Shards: 1, CommandTimeout: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	const keys = 20_000
	names := make([]string, keys)
	for i := range names {
		names[i] = s.Keyspace().CounterKey(rule, fmt.Sprint("key", i))
	}
	batch := &Batch{Node: "n1", Ops: make([]report.Report, ops)}
	rng := rand.New(rand.NewPCG(1, 2))
	send := func(first int) {
		id := int64(0)
		if arith.Of(rule).Width > 0 {
			id = time.Now().UnixMicro() / widthUS(rule)
		}
		for i := range batch.Ops {
			op := &batch.Ops[i]
			*op = report.Report{Key: names[(first+i)%keys], Rule: rule, Units: 1 + rng.Int64N(5)}
			if rule.Algorithm() == limit.AlgorithmFunnel {
				op.Ahead = arith.Of(rule).Cost(op.Units)
			} else {
				op.Buckets = []report.Bucket{{ID: id, Units: op.Units, Last: time.Duration(rng.Int64N(int64(arith.Of(rule).Width)))}}
			}
		}
		batch.Prev = batch.Seq
		batch.Seq++
		if r := exec(b, s, batch); r.Verdict != VerdictApplied {
			b.Fatal(r.Verdict)
		}
	}
	if ops > 1 {
		for i := 0; i < keys; i += ops {
			send(i)
		}
	}
	wait := func() {}
	if pause > 0 {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		wait = func() { <-tick.C }
	}
	own, theirs := cpuTime(b), serverTime(b, rdb)
	for b.Loop() {
		wait()
		send(rng.IntN(keys))
	}
	own, theirs = cpuTime(b)-own, serverTime(b, rdb)-theirs
	b.ReportMetric(float64(own.Nanoseconds())/float64(b.N*ops), "client-ns/key")
	b.ReportMetric(float64(theirs.Nanoseconds())/float64(b.N*ops), "redis-ns/key")
	b.ReportMetric(0, "ns/op")
}

// cpuTime returns what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime returns what the server has used so far.
func serverTime(b *testing.B, rdb *redis.Client) (sum time.Duration) {
	info, err := rdb.Info(ctx, "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			s, _ := strconv.ParseFloat(value, 64)
			sum += time.Duration(s * float64(time.Second))
		}
	}
	return sum
}
