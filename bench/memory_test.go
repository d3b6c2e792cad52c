package bench

import (
	"cmp"
	"flag"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

var memoryKeys = flag.Int("memory.keys", 10_000, "how many keys the limiters hold whose `memory` is measured")

// holder is a limiter whose memory is measured.
type holder struct {
	ask   func(key string)
	live  func() int64 // keys in memory
	close func()       // as soon as it is measured: there may be a gigabyte of it
}

var holders = []struct {
	name string
	open func(b *testing.B, rule *limit.Rule, maxKeys int) holder
}{
	{"local", holdLocal},
	{"hybrid", func(b *testing.B, rule *limit.Rule, n int) holder {
		l, err := hybrid.New(nil, hybrid.Options{MaxKeys: n})
		if err != nil {
			b.Fatal(err)
		}
		return holdHybrid(b, l, rule)
	}},
	{"hybrid-synced", func(b *testing.B, rule *limit.Rule, n int) holder {
		l := startRedis(b).node(b, hybrid.Options{MaxKeys: n})
		h := holdHybrid(b, l, rule)
		h.close = func() {} // the benchmark does, without waiting for the last report
		live := h.live
		h.live = func() int64 {
			if l.Stats().PendingUnits > 0 {
				return 0 // Redis has not been told of all of them
			}
			return live()
		}
		return h
	}},
}

func holdLocal(b *testing.B, rule *limit.Rule, n int) holder {
	l, err := local.New(local.Options{MaxKeys: n})
	if err != nil {
		b.Fatal(err)
	}
	live := func() int64 { return l.Stats().Keys }
	return holder{ask: func(key string) { l.Allow(key, rule) }, live: live, close: func() { _ = l.Close() }}
}

func holdHybrid(b *testing.B, l *hybrid.Limiter, rule *limit.Rule) holder {
	return holder{
		ask: func(key string) { l.Allow(key, rule) }, live: func() int64 { return l.Stats().Keys },
		close: func() {
			if err := l.Shutdown(b.Context()); err != nil {
				b.Fatal(err)
			}
		},
	}
}

// BenchmarkMemory: what a key in memory takes, its name included, and what all
// of them cost the garbage collector. The number of keys is in the name; few take
// some seconds a row, and -memory.keys is for more: a million takes up to two minutes. An iteration fills a limiter that has room for the keys and a
// little more: each is asked once, or, busy, once more some buckets later.
//
// B/key is what is alive after a collection, in-use-B/key the spans that hold
// it. gc-ms is a whole collection, gc-cpu-ms what it took of all processors and
// pause-us for how long it stopped the world; without keys they are empty-gc-ms
// and so on.
func BenchmarkMemory(b *testing.B) {
	for _, h := range holders {
		for _, rule := range memoryRules() {
			for times, use := range []string{"", "-busy"} {
				if use != "" && arith.Of(rule).Algorithm == arith.TokenBucket {
					continue // takes no more
				}
				b.Run(fmt.Sprintf("%s%s/%v/%d", h.name, use, arith.Of(rule).Algorithm, *memoryKeys), func(b *testing.B) {
					for b.Loop() {
						measureMemory(b, times+1, func() holder { return h.open(b, rule, *memoryKeys+*memoryKeys/16) })
					}
				})
			}
		}
	}
}

func measureMemory(b *testing.B, times int, open func() holder) {
	empty := collect()
	before := heap()
	h := open() // what it sets aside for keys to come is shared by those that have
	for i := range times {
		if i > 0 {
			awaitBucket(b)
		}
		fill(b, h, *memoryKeys)
	}
	full := collect()
	after := heap()
	live := float64(h.live())
	if live < 0.98*float64(*memoryKeys) {
		b.Fatalf("%v of %d keys are in memory", live, *memoryKeys)
	}
	h.close()
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/live, "B/key")
	b.ReportMetric((float64(after.HeapInuse)-float64(before.HeapInuse))/live, "in-use-B/key")
	b.ReportMetric(live, "keys")
	full.report(b, "")
	empty.report(b, "empty-")
}

// memoryRules are what the keys are asked under. None is as if never used while it is
// measured: such keys are forgotten. A short window has short buckets to wait for.
func memoryRules() []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.TokenBucket("funnel", 10, time.Hour, 100)),
		limit.Must(limit.SlidingWindow("sliding", 1_000_000_000, memoryWindow())),
	}
}

func memoryWindow() time.Duration {
	const quick = 30_000 // keys that are measured in a few seconds
	if *memoryKeys > quick {
		return time.Minute
	}
	return 20 * time.Second
}

// awaitBucket waits for a bucket of the window of memoryRules to come to its end.
func awaitBucket(b *testing.B) {
	width := memoryWindow() / arith.DefaultBuckets
	was := time.Now().Truncate(width)
	pollUntil(b, 2*width, "a bucket has ended", func() bool { return time.Now().Truncate(width) != was })
}

// fill makes n keys known and waits until they have found their places: the
// table may put them in order in the background. Their names are made here, so
// that they count.
func fill(b *testing.B, h holder, n int) {
	b.Helper()
	for i := range n {
		h.ask("user:" + strconv.Itoa(i))
		if i%1000 == 0 {
			runtime.Gosched() // for what keeps the table in order
		}
	}
	last, still := uint64(0), 0
	var known time.Time // when all keys were in memory
	pollUntil(b, 5*time.Minute, "all keys are in memory, and at rest", func() bool {
		now := heap().Mallocs
		all := h.live() > int64(n)*98/100
		if all && known.IsZero() {
			known = time.Now()
		}
		if all && now-last < 100 {
			still++
		} else {
			still = 0
		}
		last = now
		// For a million keys, a round of the sweep, which tells the policy of those used again.
		return still > 50 && time.Since(known) > time.Duration(n)*65*time.Microsecond
	})
}

// heap describes the heap. It stops the world, but collects nothing.
func heap() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}

// collection is what one garbage collection cost.
type collection struct{ took, cpu, paused time.Duration }

// collect returns the middle one of three collections, by duration. What had
// to be swept, finalized or taken out of pools is gone after the first two.
func collect() collection {
	runtime.GC()
	runtime.GC()
	var all [3]collection
	for i := range all {
		cpu, paused := gcTime(), heap().PauseTotalNs
		begun := time.Now()
		runtime.GC()
		all[i] = collection{time.Since(begun), gcTime() - cpu, time.Duration(heap().PauseTotalNs - paused)}
	}
	slices.SortFunc(all[:], func(a, c collection) int { return cmp.Compare(a.took, c.took) })
	return all[1]
}

func (c collection) report(b *testing.B, prefix string) {
	b.ReportMetric(float64(c.took.Microseconds())/1000, prefix+"gc-ms")
	b.ReportMetric(float64(c.cpu.Microseconds())/1000, prefix+"gc-cpu-ms")
	b.ReportMetric(float64(c.paused.Nanoseconds())/1000, prefix+"pause-us")
}

// gcTime is what all collections have taken of the processors so far.
func gcTime() time.Duration {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(s)
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}

// BenchmarkNew: to make a limiter with default options. heap-B is what is
// alive of one that has no keys yet.
func BenchmarkNew(b *testing.B) {
	b.Run("hybrid", func(b *testing.B) {
		b.ReportAllocs()
		limiters := make([]*hybrid.Limiter, 0, 4)
		closeAll := func() {
			for _, l := range limiters {
				_ = l.Shutdown(b.Context())
			}
			limiters = limiters[:0]
		}
		runtime.GC()
		before := heap().HeapAlloc
		l, err := hybrid.New(nil, hybrid.Options{})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		alive := heap().HeapAlloc - before
		limiters = append(limiters, l)
		for b.Loop() {
			l, err := hybrid.New(nil, hybrid.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if limiters = append(limiters, l); len(limiters) == cap(limiters) {
				b.StopTimer()
				closeAll()
				b.StartTimer()
			}
		}
		closeAll()
		b.ReportMetric(float64(alive), "heap-B")
	})
}
