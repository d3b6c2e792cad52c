// Package hybridtest is for tests of services that use package hybrid: limiters that
// share a Redis within the test's own process, a clock that moves only when told to,
// and a switch that cuts the limiters off from Redis.
//
// Everything that a test does not cause stays as it is: limiters learn of each other's
// units when the test says so ([Harness.Sync], [Harness.Preload]), except for what is urgent (see
// [hybrid.Options].MaxLag), and time passes when it moves the clock.
//
// TakeExact and exact rules work as they do with a Redis: two limiters never admit
// more than the limit. After calls of TakeExact move the clock by a millisecond before
// Take or Peek: a limiter cannot tell answers of one instant apart.
//
// Wait sleeps in real time, whatever the clock says. To test what happens when the time
// does not suffice, reserve units first and expect a limit.WaitError, which comes at once.
//
// Give your service one of Limiters for each replica. After CutOff each admits its part of
// a limit, such as 5 of 10 units with two limiters (see hybrid.FairShare). Heal is followed
// by Sync where one limiter must know what the others have admitted in the outage.
//
// The embedded Redis is not a real one: it runs the same scripts, but fails in other
// ways and evicts nothing.
package hybridtest

import (
	"context"
	"fmt"
	"log/slog"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// patience is how long a Harness waits for what must happen at once.
	patience = 20 * time.Second
	// quiet is the time between two reports, or two heartbeats: longer than a test.
	quiet = time.Minute
	// pause is the time between two looks at a limiter's state.
	pause = time.Millisecond
)

// TB is what a Harness needs of a *testing.T or *testing.B.
type TB interface {
	// Helper marks the caller as a helper.
	Helper()
	// Cleanup registers what is to be called when the test has ended.
	Cleanup(func())
	// Fatalf reports a failure and ends the test.
	Fatalf(format string, args ...any)
}

// Options says what a [Harness] consists of. The zero value is one limiter.
type Options struct {
	// Limiters is how many limiters share the Redis, as if in a process each.
	// Default 1; at most 100.
	Limiters int
	// Limiter is what all of them are made with. Its Clock is replaced by the
	// Harness's. Where it does not say otherwise SyncInterval and HeartbeatInterval are
	// 1 min, CommandTimeout is 20 s, so that a busy machine is no outage, DegradeAfter is 1,
	// ExpectedNodes is the number of limiters, and nothing is logged.
	Limiter hybrid.Options
	// Start is where the clock begins. Default 2026-03-01 12:00 UTC.
	Start time.Time
}

// Harness is limiters around an embedded Redis. Build one with [New]; the zero Harness
// is not usable. The limiters and the clock are safe for concurrent use; the methods of
// the Harness are for the goroutine of the test. It does not work in a bubble of
// testing/synctest, which cannot see the network: there [New] ends the test.
//
// A limiter that has been closed, by the test or by the service, is a process that has
// ended: the methods leave it out.
type Harness struct {
	// Limiter is the first of Limiters.
	Limiter  *hybrid.Limiter
	Limiters []*hybrid.Limiter
	// Clock is the time of all limiters and of Redis.
	Clock *clock.Manual

	tb  TB
	net network
}

// New returns limiters that are [hybrid.Synced]. They and their Redis end with the test.
// What cannot be started ends the test.
func New(tb TB, o Options) *Harness {
	tb.Helper()
	if inBubble() {
		tb.Fatalf("hybridtest: does not work in a bubble of testing/synctest: move Harness.Clock instead")
	}
	if o.Limiters == 0 {
		o.Limiters = 1
	}
	if o.Limiters < 0 || o.Limiters > 100 {
		tb.Fatalf("hybridtest: Limiters is %d, must be 1 to 100", o.Limiters)
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	}
	h := &Harness{Clock: clock.NewManual(o.Start), tb: tb}
	h.startRedis()
	for range o.Limiters {
		h.join(o)
	}
	h.Limiter = h.Limiters[0]
	h.await(hybrid.Synced)
	return h
}

// inBubble reports whether the caller is in a bubble of testing/synctest. Time stands still
// there for as long as a goroutine waits for the network, so that a Harness would wait for ever.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait() // panics outside of a bubble
	return true
}

// startRedis starts a Redis whose time is that of the clock, see network.
func (h *Harness) startRedis() {
	h.tb.Helper()
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		h.tb.Fatalf("hybridtest: %v", err)
	}
	h.tb.Cleanup(server.Close)
	server.ClockTTL(true)
	h.net.addr = server.Addr()
	h.net.tick = func() { server.SetTime(time.Unix(0, int64(h.Clock.Now()))) }
	h.net.tick()
}

// join starts a limiter.
func (h *Harness) join(o Options) {
	h.tb.Helper()
	c := hybrid.RedisOptions(h.net.addr)
	c.Dialer = h.net.dial
	// A machine that is busy is no outage: only CutOff is, which breaks connections at once.
	c.DialTimeout, c.ReadTimeout, c.WriteTimeout = patience, patience, patience
	// After as many refused connections as the pool is large go-redis tries one a second.
	c.PoolSize = 10_000
	rdb := redis.NewClient(c)
	h.tb.Cleanup(func() { _ = rdb.Close() })
	lim, err := hybrid.New(rdb, h.tuned(o))
	if err != nil {
		h.tb.Fatalf("hybridtest: %v", err)
	}
	h.tb.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what Redis has not heard of by now, nobody wants to know
		_ = lim.Shutdown(ctx)
	})
	h.Limiters = append(h.Limiters, lim)
}

// tuned returns the options of a limiter that does little by itself.
func (h *Harness) tuned(o Options) hybrid.Options {
	l := o.Limiter
	l.Clock = h.Clock
	setDefault(&l.SyncInterval, quiet)
	setDefault(&l.HeartbeatInterval, quiet)
	setDefault(&l.CommandTimeout, patience)
	setDefault(&l.DegradeAfter, 1)
	setDefault(&l.ExpectedNodes, o.Limiters)
	setDefault(&l.Logger, slog.New(slog.DiscardHandler)) // outages are what tests make
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// CutOff breaks the connections of all limiters to Redis, and refuses new ones. It
// returns when every limiter is [hybrid.Degraded]: the fallback decides from then on.
func (h *Harness) CutOff() {
	h.tb.Helper()
	h.net.cut()
	h.await(hybrid.Degraded)
}

// Heal ends what [Harness.CutOff] began. It returns when every limiter is
// [hybrid.Synced] again and has reported what it admitted meanwhile.
func (h *Harness) Heal() {
	h.tb.Helper()
	h.net.heal()
	h.await(hybrid.Synced)
	h.Sync()
}

// Sync lets every limiter report what it has admitted, and then hear of what the
// others have, of the keys that it has used itself: what some intervals bring about,
// without the wait. While the limiters are cut off it ends the test.
func (h *Harness) Sync() {
	h.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range 2 { // the second round tells the first limiter what the last has reported
		for i, lim := range h.Limiters {
			switch mode := lim.State().Mode; mode {
			case hybrid.Closed:
				continue
			case hybrid.Degraded:
				h.tb.Fatalf("hybridtest: limiter %d cannot be synced: it is %v", i, mode)
			}
			if err := lim.Flush(ctx); err != nil {
				h.tb.Fatalf("hybridtest: limiter %d: %v", i, err)
			}
		}
	}
}

// Preload is [Harness.Sync], after which every limiter knows of the given keys too,
// whether it has used them or not.
func (h *Harness) Preload(keys []string, rule *limit.Rule) {
	h.tb.Helper()
	h.Sync()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, lim := range h.Limiters {
		if lim.State().Mode == hybrid.Closed {
			continue
		}
		if err := lim.Preload(ctx, keys, rule); err != nil {
			h.tb.Fatalf("hybridtest: limiter %d: %v", i, err)
		}
	}
}

// probe is a rule under which limiters are made to ask Redis.
var probe = limit.Must(limit.TokenBucket("hybridtest", 1, time.Second, 1))

// await makes limiters ask Redis until all of them are in a mode, or closed.
func (h *Harness) await(mode hybrid.Mode) {
	h.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, lim := range h.Limiters {
		for n := 0; ; n++ {
			if m := lim.State().Mode; m == mode || m == hybrid.Closed {
				break
			}
			if ctx.Err() != nil {
				h.tb.Fatalf("hybridtest: limiter %d is not %v after %v, but %v", i, mode, patience, lim.State())
			}
			try, done := context.WithTimeout(ctx, 100*pause)
			_ = lim.Preload(try, []string{fmt.Sprint("probe ", n%10)}, probe)
			done()
			time.Sleep(pause)
		}
	}
}
