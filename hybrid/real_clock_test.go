package hybrid_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// setClock has the scripts of a client see the server's clock ahead by so many seconds
// as the key "!ahead" says.
const setClock = `
local redis = (function(real)
  local ahead = tonumber(real.call('GET', '!ahead') or '0')
  local function timed(run)
    return function(name, ...)
      if name ~= 'TIME' then
        return run(name, ...)
      end
      local t = run('TIME')
      return { string.format('%.0f', t[1] + ahead), t[2] }
    end
  end
  return { call = timed(real.call), pcall = timed(real.pcall) }
end)(redis)
`

// clocked is nodes of a server whose clock can be set, and who sets it.
func clocked(t *testing.T, size int) (nodes []*hybrid.Limiter, look *redis.Client, set func(time.Duration)) {
	srv := redistest.Start(t)
	for range size {
		rdb := dial(t, srv.Addr())
		rdb.AddHook(redistest.NewFront(setClock))
		nodes = append(nodes, newLimiter(t, rdb, quick))
	}
	eventually(t, "all nodes know each other", func() bool {
		return nodes[0].State().Nodes == size && nodes[size-1].State().Nodes == size
	})
	look = dial(t, srv.Addr())
	look.AddHook(redistest.NewFront(setClock))
	return nodes, look, func(ahead time.Duration) {
		if err := look.Set(bg, "!ahead", int64(ahead/time.Second), 0).Err(); err != nil {
			t.Fatal(err)
		}
		for _, l := range nodes { // all nodes see it: the second answer from now was asked for after this
			was := l.Stats().Heartbeats
			eventually(t, "two heartbeats", func() bool { return l.Stats().Heartbeats >= was+2 })
		}
	}
}

// Redis' clock is set back by an hour, a node asks, the clock is put right. For the hour
// between a leaky bucket is shut; what was seen then is no reason to keep it shut.
//
// Fault 78: answers from before a clock is put right are no sign of lost data.
func TestRealClockSetBackAndPutRight(t *testing.T) {
	t.Parallel()
	funnel := limit.Must(limit.Funnel("clock", 100, 1, time.Minute))
	nodes, look, set := clocked(t, 3)
	wantAdmitted(t, nodes[0], "k", funnel, 5, 5)
	flush(t, nodes[0])
	set(-time.Hour)
	for _, l := range nodes[:2] {
		_ = l.Allow("k", funnel)
		flush(t, l)
	}
	if used := usedIn(t, look, "k", funnel); used < 60 {
		t.Fatalf("%d used while the clock is behind: the test sees nothing", used)
	}
	set(0)
	for range 3 {
		for _, l := range nodes {
			_ = l.Preload(bg, []string{"k"}, funnel)
			flush(t, l)
		}
	}
	if used := usedIn(t, look, "k", funnel); used > 7 {
		t.Errorf("%d used of 7 that were admitted", used)
	}
	for i, l := range nodes {
		if used := 100 - l.Peek("k", funnel).Remaining; used > 7 {
			t.Errorf("node %d counts %d used of 7 that were admitted", i, used)
		}
		if s := l.Stats(); s.Losses != 0 || s.RolledBackKeys != 0 {
			t.Errorf("node %d takes it for lost data: %+v", i, s)
		}
	}
}

// The same with a window: what was booked meanwhile is in other buckets than what some
// nodes know, and is counted once.
//
// Fault 78: what was booked by the wrong clock counts once.
func TestRealClockSetBackCountsOnce(t *testing.T) {
	t.Parallel()
	window := limit.Must(limit.SlidingWindow("clock", 1000, 10*time.Hour))
	nodes, look, set := clocked(t, 3)
	wantAdmitted(t, nodes[0], "k", window, 100, 100)
	for range 2 {
		for _, l := range nodes {
			_ = l.Preload(bg, []string{"k"}, window)
			flush(t, l)
		}
	}
	set(-2 * time.Hour)
	wantAdmitted(t, nodes[1], "k", window, 15, 15)
	flush(t, nodes[1])
	set(0)
	for range 3 {
		for _, l := range nodes {
			_ = l.Preload(bg, []string{"k"}, window)
			l.Allow("k", window)
			flush(t, l)
		}
	}
	if used := usedIn(t, look, "k", window); used > 124 {
		t.Errorf("%d used of 124 that were admitted", used)
	}
}
