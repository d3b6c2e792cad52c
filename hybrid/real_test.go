package hybrid_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// The tests in the real_ files run against redis-server processes of their
// own: what only the real one does (its Lua, its process being killed, frozen
// or out of memory) is judged there.

// quick is for tests that wait for many exchanges.
var quick = hybrid.Options{
	SyncInterval: 5 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond,
	MaxBackoff: 100 * time.Millisecond,
}

// hasty is quick, with every unit reported at once.
var hasty = func() hybrid.Options {
	o := quick
	o.MaxLag = o.SyncInterval
	return o
}()

// eventually polls until cond holds, however busy the machine is, and ends the test if it never does.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	within(t, patience, what, cond)
}

// within polls until cond holds, and ends the test if it does not within d, where that time is what is promised.
func within(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(d); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", d, what)
		}
	}
}

func dial(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return client(t, clientOptions(addr))
}

func client(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func realNode(t testing.TB, addr string, o hybrid.Options) *hybrid.Limiter {
	t.Helper()
	l := newLimiter(t, dial(t, addr), o)
	eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
	return l
}

func realFleet(t testing.TB, addr string, size int, o hybrid.Options) (nodes []*hybrid.Limiter) {
	t.Helper()
	for range size {
		nodes = append(nodes, realNode(t, addr, o))
	}
	eventually(t, "all nodes know each other", func() bool {
		for _, l := range nodes {
			if l.State().Nodes != size {
				return false
			}
		}
		return true
	})
	return nodes
}

func allModes(nodes []*hybrid.Limiter, m hybrid.Mode) func() bool {
	return func() bool {
		for _, l := range nodes {
			if l.State().Mode != m {
				return false
			}
		}
		return true
	}
}

// ledgerSum adds up the units that all ledgers in Redis have booked.
func ledgerSum(t testing.TB, rdb redis.UniversalClient) (sum int64) {
	t.Helper()
	keys, err := rdb.Keys(bg, "hl:1:*:node:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		v, err := rdb.Get(bg, k).Result()
		if errors.Is(err, redis.Nil) {
			continue // an empty ledger, which lasts ten seconds; of another one the sum would lack its units
		}
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(v) // seq, nonce, total, failed
		n, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			t.Fatalf("%s holds %q", k, v)
		}
		sum += n
	}
	return sum
}

// everyKeyExpires checks that nothing in Redis stays for ever.
func everyKeyExpires(t testing.TB, rdb redis.UniversalClient) {
	t.Helper()
	keys, err := rdb.Keys(bg, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if ttl, err := rdb.PTTL(bg, k).Result(); ttl == -1 || err != nil { // -2: it has just expired
			t.Errorf("%s has no TTL (%v)", k, err)
		}
	}
}

// books counts what was admitted, by key.
type books struct {
	mu    sync.Mutex
	units map[string]int64
}

func (b *books) take(l *hybrid.Limiter, key string, n int64) {
	if l.AllowN(key, longWindow, n) {
		b.add(key, n)
	}
}

func (b *books) add(key string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.units == nil {
		b.units = map[string]int64{}
	}
	b.units[key] += n
}

// match waits until Redis counts exactly what was admitted.
func (b *books) match(t testing.TB, rdb redis.UniversalClient) {
	t.Helper()
	b.matchIn(t, rdb, 0)
}

// matchIn is match for a number of shards; 0 means the default.
func (b *books) matchIn(t testing.TB, rdb redis.UniversalClient, shards int) {
	t.Helper()
	if shards == 0 {
		shards = redisstore.ShardsFor(rdb)
	}
	ks, err := redisstore.NewKeyspace("", shards)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, want := range b.units {
		if got := totalIn(t, rdb, ks.CounterKey(longWindow, key)); got != want {
			t.Errorf("Redis counts %d units of %s, admitted were %d", got, key, want)
		}
	}
}

// forget strikes a key out and returns what was admitted of it.
func (b *books) forget(key string) (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = b.units[key]
	delete(b.units, key)
	return n
}

func (b *books) sum() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.units {
		n += u
	}
	return n
}

// The central promise. 100 replies are lost at random after Redis has executed
// the commands, and requests on the way there; its totals equal what was admitted, to the unit.
//
// Faults 5, 6: totals are exact on a real server, and so is its ledger.
func TestRealRepliesLostAtRandom(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const nodes, cuts = 4, 25
	var all books
	var wg sync.WaitGroup
	var limiters []*hybrid.Limiter
	for i := range nodes {
		p, err := redistest.NewProxy(srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		l := realNode(t, p.Addr(), hasty)
		limiters = append(limiters, l)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			for deadline := time.Now().Add(time.Minute); ; {
				dropped, lost := p.Lost()
				if lost >= cuts && dropped >= cuts/4 {
					p.DropRequests(0)
					p.CutReplies(0)
					return
				}
				if time.Now().After(deadline) {
					t.Errorf("only %d replies and %d requests were lost in time", lost, dropped)
					return
				}
				switch rng.IntN(6) {
				case 0, 1:
					p.CutReplies(1)
				case 2:
					p.DropRequests(1)
				}
				for range rng.IntN(5) {
					all.take(l, fmt.Sprint("key", rng.IntN(10)), 1+rng.Int64N(5))
				}
				<-time.After(time.Duration(1+rng.IntN(8)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	resent := uint64(0)
	for _, l := range limiters {
		eventually(t, "nothing pending", func() bool {
			return l.State().Mode == hybrid.Synced && l.Figures().PendingUnits == 0
		})
		conserved(t, l, true)
		resent += l.Figures().ResentBatches
	}
	admin := dial(t, srv.Addr())
	all.match(t, admin)
	if got := ledgerSum(t, admin); got != all.sum() {
		t.Errorf("the ledgers add up to %d, admitted were %d", got, all.sum())
	}
	if resent < nodes*cuts/8 {
		t.Errorf("only %d batches were sent again: the faults hit something else", resent)
	}
	everyKeyExpires(t, admin)
}
