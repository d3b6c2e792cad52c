package bench

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	accuracyFile = flag.String("accuracy", "", "write how exact shared limits are to this `file`, in the form of results of benchmarks")
	accuracyName = flag.String("accuracy.name", "trigger", "what to call the code under test there")
	accuracyRuns = flag.Int("accuracy.runs", 3, "how many `times`")
)

const (
	accuracyNodes    = 4
	accuracyOverload = 10 // times the limit is offered, by all nodes together
	accuracyLimit    = 1000
	accuracyLag      = time.Millisecond // to Redis
)

// syncIntervals are those whose worth is measured.
var syncIntervals = []time.Duration{
	10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
	time.Second, 3 * time.Second, 10 * time.Second,
}

// accuracyRules all let 1,000 pass per period.
var accuracyRules = []struct {
	name string
	rule *limit.Rule
}{
	{"sliding-1s", limit.Must(limit.SlidingWindow("sliding", accuracyLimit, time.Second))},
	{"sliding-10s", limit.Must(limit.SlidingWindow("sliding", accuracyLimit, 10*time.Second))},
	{"funnel-1s", limit.Must(limit.TokenBucket("funnel", accuracyLimit, time.Second, accuracyLimit))},
}

// accuracy is what an overloaded fleet has done.
type accuracy struct {
	over, worst float64 // admitted above the limit: in the mean window, in the worst; as parts of the limit
	under       float64 // not admitted in the mean window although it was asked for
	scripts     float64 // script calls a second, of the whole fleet
}

// TestAccuracy writes the table that -accuracy asks for. Without it, it checks
// that what the table would be made of is sound.
//
// It runs in virtual time: a second takes milliseconds, no machine is too slow, and
// what is left to chance is the order of what happens at the same instant.
func TestAccuracy(t *testing.T) {
	if *accuracyFile == "" {
		a := measureAccuracy(t, 1, accuracyRules[0].rule, 100*time.Millisecond, 5*time.Second)
		if a.over > 0.2 || a.worst < a.over || a.under > 0.2 || a.scripts < accuracyNodes {
			t.Errorf("1,000 a second, 10-fold overload: %+v", a)
		}
		return
	}
	out, err := os.Create(*accuracyFile)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for run := range *accuracyRuns {
		for _, r := range accuracyRules {
			for _, s := range syncIntervals {
				length := max(10*time.Second, 6*r.rule.Period(), 4*s)
				writeAccuracy(t, out, r.name, s, measureAccuracy(t, uint64(run), r.rule, s, length))
			}
		}
	}
}

func writeAccuracy(t *testing.T, w io.Writer, rule string, interval time.Duration, a accuracy) {
	t.Helper()
	_, err := fmt.Fprintf(w, "BenchmarkAccuracy/%s/%s/%v 1 %.2f overshoot-%% %.2f worst-%% %.2f undershoot-%% %.1f scripts/s\n",
		rule, *accuracyName, interval, 100*a.over, 100*a.worst, 100*a.under, a.scripts)
	if err != nil {
		t.Fatal(err)
	}
}

// measureAccuracy has a fleet of its own asked for one key, for so long.
func measureAccuracy(t *testing.T, seed uint64, rule *limit.Rule, interval, length time.Duration) (a accuracy) {
	t.Helper()
	t.Run(fmt.Sprintf("%v/%v/%d", rule, interval, seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed) // names and jitter of the nodes
		synctest.Test(t, func(t *testing.T) {
			nodes := newBubbleFleet(t, accuracyNodes, accuracyLag, hybrid.Options{SyncInterval: interval, MaxLag: interval, Shards: 1})
			before := scriptCalls(nodes)
			admitted := overload(nodes, rule, length)
			a = admitted.judge(rule)
			a.scripts = float64(scriptCalls(nodes)-before) / length.Seconds()
		})
	})
	return a
}

func scriptCalls(nodes []*hybrid.Limiter) (n uint64) {
	for _, l := range nodes {
		s := inside.Of(l).Figures()
		n += s.Batches + s.Heartbeats
	}
	return n
}

// admissions[i] is how many units had been admitted after i ms.
type admissions []int64

// overload offers a fleet many times what it may admit, evenly. The nodes take
// turns in being asked first.
func overload(nodes []*hybrid.Limiter, rule *limit.Rule, length time.Duration) admissions {
	steps := int(length / time.Millisecond)
	perStep := float64(accuracyOverload*arith.Of(rule).Units) * float64(time.Millisecond) / float64(rule.Period())
	if arith.Of(rule).Algorithm != arith.TokenBucket {
		perStep = float64(accuracyOverload*rule.Limit()) * float64(time.Millisecond) / float64(rule.Period())
	}
	out, asked := make(admissions, 1, steps+1), 0
	for step := range steps {
		sum := out[step]
		for ; asked < int(perStep*float64(step+1)); asked++ {
			if nodes[(asked+asked/len(nodes))%len(nodes)].Allow("hot", rule) {
				sum++
			}
		}
		out = append(out, sum)
		time.Sleep(time.Millisecond)
	}
	return out
}

// judge looks at every window of the length of the rule's period, a twentieth
// apart. A funnel was empty at first: in the first of them it may admit its
// capacity on top, and until it is full there is no saying what it should admit.
func (list admissions) judge(rule *limit.Rule) (a accuracy) {
	width := int(rule.Period() / time.Millisecond)
	windows := 0.
	for from := 0; from+width < len(list); from += width / 20 {
		may := float64(rule.Limit())
		if arith.Of(rule).Algorithm == arith.TokenBucket {
			switch may = float64(arith.Of(rule).Units); {
			case from == 0:
				may += float64(rule.Limit())
			case from < width:
				continue
			}
		}
		part := (float64(list[from+width]-list[from]) - may) / may
		a.over += max(part, 0)
		a.under += max(-part, 0)
		a.worst = max(a.worst, part)
		windows++
	}
	a.over, a.under = a.over/windows, a.under/windows
	return a
}
