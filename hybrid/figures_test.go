package hybrid_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// wantOldest checks how long ago the oldest pending unit was admitted, to the millisecond.
func wantOldest(t *testing.T, n *node, what string, want time.Duration) {
	t.Helper()
	s := n.Figures()
	if s.OldestPending.Round(time.Millisecond) != want || (s.OldestPending == 0) != (s.PendingUnits == 0) {
		t.Errorf("%s: the oldest of %d pending units is %v old, want %v", what, s.PendingUnits, s.OldestPending, want)
	}
}

// The age of the oldest unit that is not reported grows until it is reported: at once of one
// key, and of several to that of the oldest.
func TestOldestPending(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		wantOldest(t, n, "nothing admitted", 0)
		n.Allow("a", longWindow)
		n.Allow("b", longFunnel)
		time.Sleep(2 * time.Second)
		wantOldest(t, n, "all reported", 0)
		time.Sleep(time.Hour)
		n.net.set(func(n *network) { n.swallow = true }) // so that no report arrives meanwhile
		n.Allow("a", longWindow)                         // was idle for long: the age is that of this unit
		time.Sleep(50 * time.Millisecond)
		n.Allow("b", longWindow)
		n.Allow("a", longWindow)
		wantOldest(t, n, "an hour later", 50*time.Millisecond)
		n.net.up()
		time.Sleep(2 * time.Second)
		wantOldest(t, n, "all reported again", 0)
		n.net.down()
		time.Sleep(5 * time.Second) // from here on nothing is collected
		n.Allow("a", longWindow)
		n.Refund("a", longWindow, 1)
		wantOldest(t, n, "handed back", 0)
		time.Sleep(50 * time.Millisecond)
		n.Allow("a", longWindow)
		wantOldest(t, n, "admitted after one was handed back", 0) // seen here, if a lease has admitted it
		time.Sleep(20 * time.Millisecond)
		wantOldest(t, n, "a moment later", 20*time.Millisecond)
	})
}

// In an outage it grows for as long as that lasts, also for a unit that is under way, and
// whatever is asked meanwhile.
func TestOldestPendingInOutage(t *testing.T) {
	for name, cut := range map[string]func(*network){
		"refused": (*network).down,
		"silent":  func(n *network) { n.set(func(n *network) { n.swallow = true }) },
	} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{})
			n.Allow("k", longWindow)
			time.Sleep(2 * time.Second)
			cut(n.net)
			n.Allow("k", longWindow)
			for i := range 30 {
				wantOldest(t, n, name, time.Duration(i)*time.Second)
				time.Sleep(time.Second)
				n.Allow("k", longWindow)
				n.Allow("other", longFunnel)
			}
			if keys := n.Figures().QueuedKeys; keys != 2 {
				t.Errorf("%s: %d keys queued", name, keys)
			}
			n.net.up()
			time.Sleep(10 * time.Second)
			wantOldest(t, n, name+", over", 0)
			if keys := n.Figures().QueuedKeys; keys != 0 {
				t.Errorf("%s, over: %d keys queued", name, keys)
			}
		})
	}
}

// A unit that a lease has admitted after a question without units dates from when it was seen.
func TestOldestPendingOfALease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.Allow("k", longWindow)
		time.Sleep(2 * time.Second)
		n.net.down()
		time.Sleep(time.Second)
		n.AllowN("k", longWindow, 0)
		wantOldest(t, n, "asked for nothing", 0)
		n.Allow("k", longWindow)
		wantOldest(t, n, "just admitted", 0)
		time.Sleep(time.Minute)
		wantOldest(t, n, "a minute ago", time.Minute)
	})
}

// Each exchange that fails has one reason, and each reason is in the list from the start.
func TestFailuresByReason(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		begun := n.Figures()
		if got := slices.Sorted(maps.Keys(begun.FailuresBy)); !slices.Equal(got, slices.Sorted(slices.Values(redisstore.Reasons))) {
			t.Errorf("reasons %v", got)
		}
		steps := []struct {
			reason     string
			begin, end func()
		}{
			{"refused", n.net.down, n.net.up},
			{"timeout", func() { n.net.set(func(n *network) { n.swallow = true }) }, n.net.up},
			{"oom", func() { w.redis.SetError("OOM command not allowed when used memory > 'maxmemory'.") }, func() { w.redis.SetError("") }},
			{"noauth", func() { w.redis.SetError("NOAUTH Authentication required.") }, func() { w.redis.SetError("") }},
			{"error", func() { w.redis.SetError("ERR something new") }, func() { w.redis.SetError("") }},
		}
		for _, s := range steps {
			before := n.Figures()
			s.begin()
			n.Allow("k", longWindow)
			time.Sleep(20 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			during := n.Figures()
			if during.FailuresBy[s.reason]-before.FailuresBy[s.reason] < 3 {
				t.Errorf("%s: %v", s.reason, during)
			}
			sum := uint64(0)
			for _, n := range during.FailuresBy {
				sum += n
			}
			if sum != during.Failures {
				t.Errorf("%s: %d failures, and by reason %v", s.reason, during.Failures, during.FailuresBy)
			}
			// The sockets that broke with a wire have a reason of their own, once.
			if other := during.Failures - before.Failures - (during.FailuresBy[s.reason] - before.FailuresBy[s.reason]); other > 2 {
				t.Errorf("%s: %d failures of other reasons: %v", s.reason, other, during)
			}
			if during.Exchanges.Count() > before.Exchanges.Count()+1 || time.Since(during.LastSuccess) < 15*time.Second {
				t.Errorf("%s: answered meanwhile: %+v, the last at %v", s.reason, during.Exchanges, during.LastSuccess)
			}
			s.end()
			time.Sleep(20 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
			if since := time.Since(n.Figures().LastSuccess); since > 1100*time.Millisecond {
				t.Errorf("%s: the last success is %v old", s.reason, since)
			}
		}
	})
}

// How long exchanges take is counted in fixed buckets, one for each exchange.
func TestExchangeLatency(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		for _, lag := range []time.Duration{0, 7 * time.Millisecond, 100 * time.Millisecond, 101 * time.Millisecond} {
			n.net.set(func(n *network) { n.lag = lag }) // on the way there
			time.Sleep(2 * time.Second)
			before := n.Figures().Exchanges
			for range 10 {
				n.Allow("k", longWindow)
				time.Sleep(time.Second)
			}
			is := n.Figures().Exchanges
			all, sum := is.Count()-before.Count(), is.Sum-before.Sum
			if all < 10 || is.Last < lag || is.Max < is.Last || sum < time.Duration(all)*lag || sum > time.Duration(all+3)*lag {
				t.Errorf("%v: %+v, before %+v", lag, is, before)
			}
			i := 0
			for is.Bounds()[i] < lag {
				i++
			}
			// A few find no connection, and take as long as its greeting besides.
			if got := is.Buckets[i] - before.Buckets[i]; got > all || got+2 < all {
				t.Errorf("%v: %d of %d in the bucket up to %v", lag, got, all, is.Bounds()[i])
			}
		}
	})
}
