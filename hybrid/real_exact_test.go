package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// exactRulesOf admit so little in an hour that nothing comes back during a test.
func exactRulesOf(most int64) []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.Funnel("bucket", most, 1, time.Hour)),
		limit.Must(limit.SlidingWindow("window", most, 24*time.Hour)),
		limit.Must(limit.FixedWindow("day", most, 10_000*time.Hour)),
	}
}

// By ample Redis is asked how many units it counts beyond the limit, too.
var exactRules, ample = exactRulesOf(300), exactRulesOf(100_000)

// exactBooks is what a fleet has admitted of each key: by Redis' decision, by the nodes themselves, and
// what may have been booked besides.
type exactBooks struct {
	mu                      sync.Mutex
	byRedis, byNode, unsure map[string]int64
}

func newExactBooks() *exactBooks {
	return &exactBooks{byRedis: map[string]int64{}, byNode: map[string]int64{}, unsure: map[string]int64{}}
}

// take takes n units, exactly or not.
func (b *exactBooks) take(l *hybrid.Limiter, key string, rule *limit.Rule, n int64, exactly bool) {
	var res limit.Result
	var err error
	if exactly {
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		res, err = l.TakeExact(ctx, key, rule, n)
	} else {
		res = l.Take(key, rule, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch name := rule.Name() + key; {
	case err != nil:
		b.unsure[name] += n
	case res.Allowed && res.Source == limit.SourceRemote:
		b.byRedis[name] += n
	case res.Allowed:
		b.byNode[name] += n
	}
}

// load has all nodes take for a while: of the keys that begin with "exact" only exactly, of the others
// sometimes.
func (b *exactBooks) load(nodes []*hybrid.Limiter, d time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for _, l := range nodes {
		for range 3 {
			all.Go(func() {
				tick := time.NewTicker(2 * time.Millisecond)
				defer tick.Stop()
				for ; time.Now().Before(end); <-tick.C {
					rule, n := exactRules[rand.N(len(exactRules))], 1+rand.Int64N(3)
					b.take(l, fmt.Sprint("exact", rand.N(2)), rule, n, true)
					b.take(l, "mixed", rule, n, rand.N(2) == 0)
				}
			})
		}
	}
	all.Wait()
}

// check uses up the keys, and compares the books with what Redis counts.
func (b *exactBooks) check(t *testing.T, l *hybrid.Limiter, rdb *redis.Client) {
	t.Helper()
	for i, rule := range exactRules {
		for _, key := range []string{"exact0", "exact1", "mixed"} {
			for range rule.Limit() + 1 {
				b.take(l, key, rule, 1, true)
			}
			name := rule.Name() + key
			byRedis, byNode, unsure := b.byRedis[name], b.byNode[name], b.unsure[name]
			if used := usedIn(t, rdb, key, ample[i]); used > byRedis+byNode+unsure || used < byRedis+byNode-1 { // one may have leaked
				t.Errorf("%v %q: Redis counts %d units, %d were admitted by it, %d by nodes, %d are unsure", rule, key, used, byRedis, byNode, unsure)
			}
			if byRedis > rule.Limit() || key != "mixed" && byNode == 0 && byRedis+unsure < rule.Limit() {
				t.Errorf("%v %q: Redis has admitted %d units, %d are unsure", rule, key, byRedis, unsure)
			}
		}
	}
}

// While nodes are connected, what all take exactly admits no more than the limit: to the unit what Redis
// counts. In the middle Redis stands still, so that calls fail, and the fallback decides for a while: what
// that admits is booked afterwards, and no unit is lost or counts twice.
//
// Fault 104: a server that stands still while units are taken.
func TestRealExact(t *testing.T) {
	t.Parallel()
	for _, freeze := range []bool{false, true} {
		t.Run(fmt.Sprintf("freeze %v", freeze), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			nodes, b, admin := realFleet(t, srv.Addr(), 3, quick), newExactBooks(), dial(t, srv.Addr())
			b.load(nodes, 300*time.Millisecond)
			if freeze {
				srv.FreezeOrSkip(t)
				b.load(nodes, 1500*time.Millisecond)
				if err := srv.Thaw(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "synced", allModes(nodes, hybrid.Synced))
			}
			b.load(nodes, time.Second)
			for _, l := range nodes {
				flush(t, l)
				conserved(t, l, true)
			}
			b.check(t, nodes[0], admin)
			for name, units := range b.unsure {
				if !freeze && units > 0 {
					t.Errorf("%d units of %s are unsure", units, name)
				}
			}
		})
	}
}

// Redis is killed and comes back empty. What was taken exactly is told again by the nodes that know of it,
// and they admit no more than what was left.
//
// Fault 104: a server that loses what was taken exactly.
func TestRealExactAfterAKill(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	nodes, b, admin := realFleet(t, srv.Addr(), 3, quick), newExactBooks(), dial(t, srv.Addr())
	b.load(nodes, 200*time.Millisecond)
	for range 2 { // the second round tells all what the first has booked
		for _, l := range nodes {
			flush(t, l)
		}
	}
	before := map[*limit.Rule]int64{}
	for _, rule := range exactRules {
		before[rule] = usedIn(t, admin, "exact0", rule)
	}
	srv.Kill()
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, rule := range exactRules {
		eventually(t, fmt.Sprintf("%v: %d units told again", rule, before[rule]), func() bool {
			return usedIn(t, admin, "exact0", rule) >= before[rule]-1
		})
	}
	eventually(t, "synced", allModes(nodes, hybrid.Synced))
	for _, l := range nodes {
		flush(t, l)
	}
	b.load(nodes, time.Second)
	for _, l := range nodes {
		flush(t, l)
		conserved(t, l, true)
	}
	b.check(t, nodes[0], admin)
	everyKeyExpires(t, admin)
}

// On a real server four callers take units exactly and hand them back, by each algorithm: none of their
// calls is refused, although the limit is but one unit more, and none of the units stays lost. Another
// process finds them.
//
// Fault 107: on a real server.
func TestRealHandedBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	nodes, admin := realFleet(t, srv.Addr(), 2, hybrid.Options{CommandTimeout: 5 * time.Second}), dial(t, srv.Addr())
	for _, rule := range fives {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for i := range 25 {
					if !exact(t, nodes[0], "k", rule) {
						t.Errorf("%v: call %d is refused", rule, i)
						continue
					}
					if back := nodes[0].Refund("k", rule, 1); back != 1 {
						t.Errorf("%v: %d units given back", rule, back)
					}
				}
			})
		}
		all.Wait()
		flush(t, nodes[0])
		eventually(t, "no unit is lost", func() bool { return usedIn(t, admin, "k", rule) == 0 })
		for i := range 5 {
			if !exact(t, nodes[1], "k", rule) {
				t.Errorf("%v: unit %d is refused by the other process", rule, i)
			}
		}
	}
	if s := nodes[0].Stats(); s.UnreturnedUnits != 0 {
		t.Errorf("%d units are not given back", s.UnreturnedUnits)
	}
}
