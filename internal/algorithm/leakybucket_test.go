package algorithm

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What tests of several packages use, by short names.
var (
	funnelRule = limittest.FunnelRule
	windowRule = limittest.WindowRule
)

// ratTAT is a leaky bucket in real numbers: slow and obviously right.
type ratTAT struct{ tat, t *big.Rat }

func newRatTAT(r *arith.Rule) *ratTAT {
	return &ratTAT{new(big.Rat), big.NewRat(int64(r.Period), r.Units)}
}

func (f *ratTAT) after(now, n int64) *big.Rat {
	at := big.NewRat(now, 1)
	base := f.tat
	if base.Cmp(at) < 0 {
		base = at
	}
	return new(big.Rat).Add(base, new(big.Rat).Mul(f.t, big.NewRat(n, 1)))
}

// take counts n units if they fit.
func take(s State, r *arith.Rule, now, n int64) bool {
	if !s.Fits(r, now, n) {
		return false
	}
	s.Book(r, now, n, n, 1)
	return true
}

// add books units whether or not they fit.
func (f *ratTAT) add(now, n int64) { f.tat = f.after(now, n) }

// mergeRun plays one random history of several nodes that share a leaky bucket
// through an authority which merges as the Lua script does, and hands the
// authority's TAT and the true one to check after every sync.
func mergeRun(t *testing.T, seed uint64, nodes int, check func(r *arith.Rule, merged, truth *big.Rat, interval int64)) {
	rng := rand.New(rand.NewPCG(seed, 7))
	r := funnelRule(t, 1+rng.Int64N(100), 1+rng.Int64N(100), time.Duration(1+rng.Int64N(10))*time.Second)
	fs, firsts := make([]LeakyBucket, nodes), make([]int64, nodes)
	truth := newRatTAT(arith.Of(r))
	var redis arith.Span
	interval, now := int64(0), int64(1e9)
	exact := func(s arith.Span) *big.Rat {
		return new(big.Rat).Add(big.NewRat(s.NS, 1), big.NewRat(s.Rem, arith.Of(r).Units))
	}
	for range 200 {
		now += rng.Int64N(int64(2*r.Period())/arith.Of(r).Units + 2)
		i := rng.IntN(nodes)
		f := &fs[i]
		if rng.IntN(4) > 0 {
			if n := 1 + rng.Int64N(3); take(f, arith.Of(r), now, n) {
				if f.Pend.Units == n {
					firsts[i] = now
				}
				truth.add(now, n)
			}
			continue
		}
		if f.Pend.Units == 0 {
			continue
		}
		interval = max(interval, now-firsts[i])
		f.Collect(arith.Of(r))
		ahead := arith.Of(r).Sub(f.under().sent.TAT, arith.Span{NS: now})
		redis = arith.Of(r).Add(redis, arith.Of(r).Cost(f.under().sent.Units)).Max(arith.Of(r).Add(arith.Span{NS: now}, ahead))
		f.Settle(arith.Of(r), report.Answer{State: report.State{Level: arith.Of(r).Diff(redis, arith.Span{NS: now})}, At: now}, 1)
		// What the others have not reported yet is in the truth only.
		synced := true
		for j := range fs {
			synced = synced && fs[j].Pend.Units == 0
		}
		if synced {
			at := big.NewRat(now, 1)
			merged, real := exact(redis), truth.tat
			if merged.Cmp(at) < 0 {
				merged = at // an empty leaky bucket is empty, however long it has been
			}
			if real.Cmp(at) < 0 {
				real = at
			}
			check(arith.Of(r), merged, real, interval)
		}
	}
}

// What Redis makes of the reports of several nodes is never less than the truth, and more by an interval at most. What one
// node reports is exact.
func TestMergeNeverUnderCountsAndIsCloseToTheTruth(t *testing.T) {
	var checked [6]int
	for seed := range uint64(2500) {
		nodes := 1 + int(seed%5)
		mergeRun(t, seed, nodes, func(r *arith.Rule, merged, truth *big.Rat, interval int64) {
			checked[nodes]++
			if merged.Cmp(truth) < 0 {
				t.Fatalf("seed %d, %v: merged %v is below the true %v", seed, r, merged, truth)
			}
			if nodes == 1 {
				interval = 0
			}
			if d := new(big.Rat).Sub(merged, truth); d.Cmp(big.NewRat(interval, 1)) > 0 {
				t.Fatalf("seed %d, %v, %d nodes: merged exceeds the true TAT by %v ns, more than an interval of %d", seed, r, nodes, d, interval)
			}
		})
	}
	if checked[1] < 10_000 || checked[2] < 500 {
		t.Fatalf("only %d comparisons", checked)
	}
}
