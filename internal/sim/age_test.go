package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// How old what a node believes of a key is when it decides, for keys in use: those that the
// node has been asked for at least once in each lag, for a lag already. Nothing is wrong with
// Redis, but a script call takes it 2 ms.
//
// It is the age of the knowledge itself: since Redis has executed the script whose answer
// is the latest that the node has. Of a key whose reports are not urgent that is up to a
// lag, and an exchange; a hundredth of the checks may find it a fifth older. A node that only
// refuses has nothing to report, but asks as often.
func TestSimAgeOfBeliefs(t *testing.T) {
	for _, c := range []struct {
		nodes, keys int
		rate        float64 // checks a second, of all nodes
		rule        *limit.Rule
		most        float64 // lags, for 99 of 100 checks
	}{
		{1, 2000, 5000, limit.Must(limit.TokenBucket("far", 1_000_000, time.Minute, 1_000_000)), 1.2},
		{4, 2000, 5000, limit.Must(limit.TokenBucket("far", 1_000_000, time.Minute, 1_000_000)), 1.2},
		{4, 2000, 5000, limit.Must(limit.SlidingWindow("at", 250, 10*time.Second)), 1.2},
		{4, 200, 1000, limit.Must(limit.SlidingWindow("scarce", 10, time.Minute)), 1.2},
		{2, 500, 2000, limit.Must(limit.TokenBucket("short", 25, time.Second, 25)), 1.2}, // a lag of 250 ms
	} {
		t.Run(fmt.Sprintf("%d/%d/%s", c.nodes, c.keys, c.rule.Name()), func(t *testing.T) {
			t.Parallel()
			s := emptySim(t, 1, Options{Shards: 1}, 1, []*limit.Rule{c.rule})
			s.servers[0].capacity = perScript(2 * ms)
			s.oracle.loose = true
			for range c.nodes {
				s.addNode(Options{})
			}
			pace := s.opt.pace()
			lag := int64(min(pace.MaxLag, max(pace.Interval, arith.Of(c.rule).Horizon()/4)))
			ages := s.ages(8*time.Second, c.keys, c.rate, lag)
			p50, p99, most := ages[len(ages)/2], ages[len(ages)*99/100], ages[len(ages)-1]
			t.Logf("%d checks: p50 %.2f, p99 %.2f, at most %.2f lags of %v", len(ages), lags(p50, lag), lags(p99, lag), lags(most, lag), time.Duration(lag))
			if len(ages) < int(c.rate) {
				t.Errorf("only %d checks were of keys in use", len(ages))
			}
			if lags(p99, lag) > c.most {
				t.Errorf("1 in 100 checks goes by what is %.2f lags old, or older; want %v", lags(p99, lag), c.most)
			}
		})
	}
}

// lags returns how many lags a time is.
func lags(d, lag int64) float64 { return float64(d) / float64(lag) }

// ages asks all nodes for keys, by a Zipf distribution, and returns how old the view was for
// each check of a key in use, in ascending order.
func (s *sim) ages(d time.Duration, keys int, rate float64, lag int64) (ages []int64) {
	type use struct{ since, last int64 }
	uses := map[*simNode]map[oracleKey]*use{}
	for _, n := range s.nodes {
		uses[n] = map[oracleKey]*use{}
	}
	zipf := rand.NewZipf(s.rng, 1.1, 1, uint64(keys-1))
	for end := s.now + int64(d); s.now < end; {
		n, k := s.nodes[s.rng.IntN(len(s.nodes))], oracleKey{s.rules[0], fmt.Sprint("key", zipf.Uint64())}
		u := uses[n][k]
		if u == nil || s.now-u.last > lag {
			u = &use{since: s.now}
			uses[n][k] = u
		}
		u.last = s.now
		if s.now-u.since >= lag {
			ages = append(ages, s.now-s.oracle.nodes[n].shares[k].answeredAt)
		}
		n.take(k.key, k.rule, 1)
		s.run(time.Duration(s.rng.ExpFloat64() / rate * float64(time.Second)))
	}
	slices.Sort(ages)
	return ages
}
