package hybrid_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What the tests of fail-overs share: a fleet under load, and a record of what
// happened when, to explain a failure with.

// patience is how long servers may take to do their part on a busy machine.
const patience = 30 * time.Second

// promise is how long after the promotion of a new master every node must be
// synced again: 5 s, and three times that on a machine three times slower.
const promise = 3 * 5 * time.Second

// diary records what happens, and prints it if the test fails.
type diary struct {
	begun time.Time
	mu    sync.Mutex
	lines []string
}

func newDiary(t testing.TB) *diary {
	d := &diary{begun: time.Now()}
	t.Cleanup(func() {
		if t.Failed() {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, l := range d.lines {
				t.Log(l)
			}
		}
	})
	return d
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%7.3f s ", time.Since(d.begun).Seconds())+fmt.Sprintf(format, args...))
}

// crew is a fleet under load.
type crew struct {
	t     testing.TB
	diary *diary
	nodes []*hybrid.Limiter
	all   books                      // of the rule longWindow
	watch func(string, limit.Result) // is called for every check of the load; may be nil

	stop chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// newCrew makes a limiter for each client and waits until they know each other.
func newCrew(t testing.TB, o hybrid.Options, clients ...redis.UniversalClient) *crew {
	t.Helper()
	c := &crew{t: t, diary: newDiary(t), stop: make(chan struct{})}
	for _, rdb := range clients {
		c.join(o, rdb)
	}
	c.meet()
	return c
}

// join adds a node.
func (c *crew) join(o hybrid.Options, rdb redis.UniversalClient) *hybrid.Limiter {
	c.t.Helper()
	i := len(c.nodes)
	o.OnStateChange = func(s hybrid.State) { c.diary.note("node %d: %v %v", i, s, s.Err) }
	c.t.Cleanup(func() { rdb.Close() })
	c.nodes = append(c.nodes, newLimiter(c.t, rdb, o))
	return c.nodes[i]
}

// meet waits until all nodes know each other.
func (c *crew) meet() {
	c.t.Helper()
	eventually(c.t, "all nodes know each other", func() bool {
		return c.each(func(l *hybrid.Limiter) bool {
			s := l.State()
			return s.Mode == hybrid.Synced && s.Nodes == len(c.nodes)
		})
	})
}

// each reports whether something holds for every node.
func (c *crew) each(holds func(*hybrid.Limiter) bool) bool {
	for _, l := range c.nodes {
		if !holds(l) {
			return false
		}
	}
	return true
}

// load asks every node for a unit every 2 ms until halt, of keys of its own
// and of the given ones, which all nodes share.
func (c *crew) load(shared ...string) {
	c.t.Cleanup(c.halt) // for a test that fails
	for i, l := range c.nodes {
		c.every(2*time.Millisecond, func(k int) {
			c.ask(l, ownKey(i, k), 1)
			if k%4 == 0 && len(shared) > 0 {
				c.ask(l, shared[k/4%len(shared)], 1)
			}
		})
	}
}

// ask asks a node for units of a key under the rule longWindow.
func (c *crew) ask(l *hybrid.Limiter, key string, n int64) {
	res := l.Take(key, longWindow, n)
	if res.Allowed {
		c.all.add(key, n)
	}
	if c.watch != nil {
		c.watch(key, res)
	}
}

// ownKey returns the k-th key that only node i uses; they begin anew after ownKeys.
func ownKey(i, k int) string { return fmt.Sprintf("own-%d-%d", i, k%ownKeys) }

// ownKeys is how many keys each node has for itself.
const ownKeys = 20

// names returns n keys.
func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// every calls f with a running number until halt.
func (c *crew) every(d time.Duration, f func(k int)) {
	c.wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for k := 0; ; k++ {
			select {
			case <-c.stop:
				return
			case <-tick.C:
				f(k)
			}
		}
	})
}

// halt ends the load. Doing so twice makes no difference.
func (c *crew) halt() {
	c.once.Do(func() {
		close(c.stop)
		c.wg.Wait()
		c.diary.note("the load has ended")
	})
}

// flush has every node report all and look at all.
func (c *crew) flush() {
	c.t.Helper()
	for _, l := range c.nodes {
		flush(c.t, l)
	}
}

// exhaust has all nodes ask for more of a key than there is, until each knows
// that nothing is left, and returns how much Redis counts of it then.
func (c *crew) exhaust(rdb redis.UniversalClient, key string) int64 {
	c.t.Helper()
	for range 2 {
		for _, l := range c.nodes {
			admitted(l, key, longTen, 20)
		}
		c.flush()
	}
	for _, l := range c.nodes {
		wantAdmitted(c.t, l, key, longTen, 1, 0)
	}
	return totalIn(c.t, rdb, counterKey(longTen, key))
}

// degraded waits until every node has noticed.
func (c *crew) degraded() {
	c.t.Helper()
	eventually(c.t, "every node degraded", allModes(c.nodes, hybrid.Degraded))
	c.diary.note("every node is degraded")
}

// fallsBack waits until every node decides by itself.
func (c *crew) fallsBack() {
	c.t.Helper()
	for i, l := range c.nodes {
		eventually(c.t, "decided by the fallback", func() bool {
			return l.Peek(ownKey(i, 0), longWindow).Source == limit.SourceDegraded
		})
	}
}

// recovered waits for a promotion, and checks that every node is synced soon
// afterwards. It must be called when all nodes have noticed the outage.
func (c *crew) recovered(promoted func() bool) {
	c.t.Helper()
	eventually(c.t, "promoted", promoted)
	at := time.Now()
	c.diary.note("promoted")
	eventually(c.t, "every node synced", allModes(c.nodes, hybrid.Synced))
	took := time.Since(at)
	c.diary.note("every node is synced, %v after the promotion", took)
	if took > promise {
		c.t.Errorf("synced %v after the promotion, at most %v are promised", took, promise)
	}
}

// sums adds up what the nodes say of themselves.
func (c *crew) sums() (sum inside.Figures) {
	for _, l := range c.nodes {
		s := l.Figures()
		sum.AdmittedUnits += s.AdmittedUnits
		sum.BookedUnits += s.BookedUnits
		sum.PendingUnits += s.PendingUnits
		sum.Losses += s.Losses
		sum.RolledBackKeys += s.RolledBackKeys
		sum.BadReplies += s.BadReplies
		sum.Quarantined += s.Quarantined
	}
	return sum
}

// agree checks that Redis, whose masters are given too, has booked exactly what
// the nodes have admitted and been acknowledged, no unit less and none twice.
// Nothing may have been lost.
func (c *crew) agree(rdb redis.UniversalClient, masters ...*redis.Client) {
	c.t.Helper()
	c.all.match(c.t, rdb)
	for _, l := range c.nodes {
		conserved(c.t, l, true)
	}
	s, sum := c.sums(), int64(0)
	for _, m := range masters {
		sum += ledgerSum(c.t, m)
	}
	if sum != s.BookedUnits || sum != s.AdmittedUnits {
		c.t.Errorf("the ledgers add up to %d, acknowledged were %d, admitted %d", sum, s.BookedUnits, s.AdmittedUnits)
	}
	if s.Losses+s.RolledBackKeys+s.BadReplies+s.Quarantined > 0 {
		c.t.Errorf("nothing was lost or broken, but: %+v", s)
	}
}
