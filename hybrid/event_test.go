package hybrid_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// happenings records the calls of OnEvent.
type happenings struct {
	mu   sync.Mutex
	seen []hybrid.Event
}

func (h *happenings) add(e hybrid.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, e)
}

func (h *happenings) of(kind hybrid.EventKind) (list []hybrid.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.seen {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// While replies are lost at random the log stays short: outages of less than a second share a line a
// minute, and of the others there are 6 lines, and then one in 10 s.
//
// Faults 65, 82: the number of lines has a bound, whatever the number of changes.
func TestLostRepliesAndTheLog(t *testing.T) {
	for _, percent := range []int{5, 20} {
		t.Run(fmt.Sprint(percent, " %"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				const lasts = 30 * time.Second
				var log logbook
				var seen changes
				n := w.synced(hybrid.Options{SyncInterval: 20 * time.Millisecond, MaxLag: 20 * time.Millisecond, PollOnly: true, Logger: slog.New(&log), OnStateChange: seen.add}) // keys that refuse ask all the time
				time.Sleep(time.Minute)                                                                                                                                            // what the start has said is forgotten
				_, all := log.count(slog.LevelWarn)
				rng := rand.New(rand.NewPCG(uint64(percent), 1))
				n.net.set(func(n *network) { n.loss = func() bool { return rng.IntN(100) < percent } })
				unavailable, looks := 0, 0
				for begun := time.Now(); time.Since(begun) < lasts; {
					if looks++; n.State().Mode == hybrid.Degraded {
						unavailable++
					}
					for k := range 10 {
						n.Allow(fmt.Sprint("k", k), longFunnel)
					}
					time.Sleep(20 * time.Millisecond)
				}
				n.net.set(func(n *network) { n.loss = nil })
				time.Sleep(70 * time.Second) // the last line may come late
				wantMode(t, n.Limiter, hybrid.Synced)
				_, lines := log.count(slog.LevelWarn)
				changed := len(seen.modes())
				t.Logf("%d changes, %d lines, degraded for %d of %d looks", changed, lines-all, unavailable, looks)
				if unavailable*100 > 2*looks*percent { // of an exchange every 20 ms: mostly synced
					t.Errorf("degraded for %d of %d looks", unavailable, looks)
				}
				if percent == 20 && changed < 50 {
					t.Error("too little has happened")
				}
				ended, long, said := 0, 0, 0
				var begun time.Time
				for _, s := range seen.seen {
					switch {
					case s.Mode == hybrid.Degraded && begun.IsZero():
						begun = s.Since
					case s.Mode == hybrid.Synced && !begun.IsZero():
						if ended++; s.Since.Sub(begun) > 900*time.Millisecond { // which replies are lost is by chance
							long++
						}
						begun = time.Time{}
					}
				}
				text := log.text()
				for _, m := range regexp.MustCompile(` outages=(\d+) `).FindAllStringSubmatch(text, -1) {
					n, _ := strconv.Atoi(m[1])
					said += n
				}
				if lines-all > 1+3*long || said != ended || !strings.Contains(text, "WARN rate limiter degraded briefly reason=closed err=EOF outage_seconds=") {
					t.Errorf("%d outages, %d of them of a second, want a line that sums up the others and three for each of these:\n%s", ended, long, text)
				}
			})
		})
	}
}

// The line that ends an outage says how long it was and what has become of its units.
//
// Fault 65: one line says all.
func TestLineThatEndsAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log)})
		short := limit.Must(limit.SlidingWindow("short", 1000, time.Second))
		n.Allow("before", longTen)
		time.Sleep(time.Second)
		n.net.down()
		n.Allow("noticed", longTen)
		time.Sleep(5 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		wantAdmitted(t, n.Limiter, "long", longTen, 7, 7)
		wantAdmitted(t, n.Limiter, "short", short, 30, 30)
		time.Sleep(time.Minute)
		n.net.up()
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		text := log.text()
		for _, want := range []string{"admitted=37", "reported=8", "expired=30", "outages=1", "outage_seconds=6"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		if strings.Count(text, "outage_seconds=") != 1 {
			t.Errorf("the start was told as an outage:\n%s", text)
		}
	})
}

// A password is for an operator: an error, where an outage is a warning.
func TestOperatorsAreToldByErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log)})
		w.redis.RequireAuth("secret")
		n.net.sever()
		n.Allow("k", longTen)
		time.Sleep(5 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		if errs, _ := log.count(slog.LevelError); errs != 1 || !strings.Contains(log.text(), "noauth") {
			t.Errorf("%d errors:\n%s", errs, log.text())
		}
		w.redis.RequireAuth("")
	})
}

// A broken key is reported once, with its name, until it works again and breaks anew.
//
// Fault 27: one event for each time that a key breaks.
func TestBrokenKeysAreEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		var seen happenings
		n := w.synced(hybrid.Options{Logger: slog.New(&log), OnEvent: seen.add})
		key := "bad \n\x00" + strings.Repeat("é", 100)
		name := counterKey(longTen, key)
		for range 2 {
			if err := w.redis.Set(name, "no counter"); err != nil {
				t.Fatal(err)
			}
			for range 300 { // half a minute: six tries
				n.Allow(key, longTen)
				time.Sleep(100 * time.Millisecond)
			}
			w.redis.Del(name)
			time.Sleep(10 * time.Second)
			n.Allow(key, longTen)
			time.Sleep(10 * time.Second)
		}
		list := seen.of(hybrid.EventQuarantined)
		if len(list) != 2 || list[0].Key != key || list[0].Err == nil || list[0].Time.IsZero() || !list[1].Time.After(list[0].Time) {
			t.Errorf("%v", list)
		}
		text := log.text()
		if strings.Count(text, "key-quarantined") != 2 || !strings.Contains(text, `key="bad \n\x00\u00e9`) {
			t.Errorf("log:\n%s", text)
		}
		for line := range strings.Lines(text) {
			if _, key, ok := strings.Cut(line, "key="); ok && len(strings.TrimSpace(key)) > 64 {
				t.Errorf("a long key: %s", line)
			}
		}
	})
}

// A loss of everything is one event, however many shards there are.
//
// Fault 28: one event and one line.
func TestLossIsAnEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		var seen happenings
		n := w.synced(hybrid.Options{Shards: 64, Logger: slog.New(&log), OnEvent: seen.add})
		for k := range 40 {
			n.Allow(fmt.Sprint("k", k), longTen)
		}
		time.Sleep(2 * time.Second)
		w.redis.FlushAll()
		time.Sleep(5 * time.Second)
		list := seen.of(hybrid.EventDataLost)
		if n.Figures().Losses < 10 || len(list) != 1 || !strings.Contains(list[0].Reason, "of 64 shards") || strings.Count(log.text(), "data-lost") != 1 {
			t.Errorf("%d losses: %v\n%s", n.Figures().Losses, list, log.text())
		}
	})
}

// A mistake of the caller is logged once for each cause, also without Redis.
//
// Fault 87: one line and one event for each cause.
func TestMistakesAreToldOnce(t *testing.T) {
	var log logbook
	var seen happenings
	l, err := hybrid.New(nil, hybrid.Options{Logger: slog.New(&log), OnEvent: seen.add})
	if err != nil {
		t.Fatal(err)
	}
	exact := limit.Must(limit.SlidingLog("exact", 5, time.Minute))
	other := limit.Must(limit.SlidingWindow(longTen.Name(), 10, time.Second))
	for range 100 {
		l.Allow("k", nil)
		l.Take("k", longTen, -1)
		l.Peek("k", exact)
		l.Refund("k", longTen, -1)
		l.Reserve("k", nil)
		l.TakeAll(limit.Check{Key: "k", Rule: longTen}, limit.Check{Key: "k", Rule: other})
	}
	if err := l.Shutdown(bg); err != nil { // and with that everything has been delivered
		t.Fatal(err)
	}
	if got := l.Figures().Invalid; got != 600 {
		t.Errorf("%d counted, want 600", got)
	}
	list := seen.of(hybrid.EventInvalid)
	if warn, all := log.count(slog.LevelWarn); len(list) != 4 || warn != 4 || all != 4 {
		t.Errorf("%v\n%s", list, log.text())
	}
	for _, cause := range []string{"nil", "negative", "exact", longTen.Name()} {
		if !slices.ContainsFunc(list, func(e hybrid.Event) bool { return strings.Contains(e.Err.Error(), cause) && e.Key == "k" }) {
			t.Errorf("nobody says %q: %v", cause, list)
		}
	}
}

// OnEvent and OnStateChange may use the limiter, and panic: it is counted. They are never called at the same time.
//
// Faults 61, 62: they panic and use the limiter.
func TestOnEventIsForeign(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var l atomic.Pointer[hybrid.Limiter]
		var inside, calls atomic.Int32
		var seen changes
		enter := func() {
			if inside.Add(1) > 1 {
				t.Error("two calls at a time")
			}
			time.Sleep(10 * time.Millisecond)
			if l := l.Load(); l != nil {
				l.Allow("from the hook", nil)
				l.Peek("from the hook", longTen)
				_, _, _ = l.State(), l.Figures(), l.Flush(bg)
			}
			inside.Add(-1)
			calls.Add(1)
			panic("a hook of the user")
		}
		n := w.synced(hybrid.Options{
			OnStateChange: func(s hybrid.State) { seen.add(s); enter() },
			OnEvent: func(e hybrid.Event) {
				if e.Kind == hybrid.EventClient { // of the test's own
					return
				}
				enter()
			},
		})
		l.Store(n.Limiter)
		n.Allow("k", nil)
		n.AllowN("k", longTen, -1)
		n.Allow("k", longTen)
		for range 3 {
			n.net.down()
			time.Sleep(5 * time.Second)
			n.net.up()
			time.Sleep(10 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
		}
		n.Allow("k", longTen)
		time.Sleep(2 * time.Second)
		w.wantUsed("k", longTen, 2)
		want := []hybrid.Mode{hybrid.Synced}
		for range 3 {
			want = append(want, hybrid.Degraded, hybrid.Resyncing, hybrid.Synced)
		}
		if got := seen.modes(); !slices.Equal(got, want) {
			t.Errorf("told of %v, want %v", got, want)
		}
		for i, s := range seen.seen {
			if i > 0 && s.Since.Before(seen.seen[i-1].Since) || (s.Reason == "") != (s.Mode == hybrid.Synced) {
				t.Errorf("change %d: %v, %q", i, s, s.Reason)
			}
		}
		if c := calls.Load(); c != 2+10 || n.Figures().HookPanics != 12 { // two mistakes, and ten changes
			t.Errorf("%d calls, %d panics counted, want 12", c, n.Figures().HookPanics)
		}
	})
}

// A hook that hangs costs old events, and no memory.
//
// Fault 62: it hangs.
func TestOnEventHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		ks, err := redisstore.NewKeyspace("", 1)
		if err != nil {
			t.Fatal(err)
		}
		var seen happenings
		n := w.synced(hybrid.Options{Shards: 1, OnEvent: func(e hybrid.Event) {
			if e.Kind != hybrid.EventClient { // of the test's own
				<-release
				seen.add(e)
			}
		}})
		for k := range 200 {
			key := fmt.Sprint("k", k)
			if err := w.redis.Set(ks.CounterKey(longTen, key), "no counter"); err != nil {
				t.Fatal(err)
			}
			n.Allow(key, longTen)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		close(release)
		time.Sleep(time.Second)
		list := seen.of(hybrid.EventQuarantined)
		if len(list) != 65 || list[64].Key != "k199" {
			t.Errorf("%d events, the last of %q, want the first and the latest 64", len(list), list[len(list)-1].Key)
		}
	})
}

// A rule that is built anew for each check is reported once, with the rule.
func TestRebuiltRuleIsToldOnce(t *testing.T) {
	var seen happenings
	l, err := hybrid.New(nil, hybrid.Options{Logger: slog.New(slog.DiscardHandler), OnEvent: seen.add})
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		l.Allow("k", limit.Must(limit.PerMinute("api", 20)))
	}
	if err := l.Shutdown(bg); err != nil {
		t.Fatal(err)
	}
	list := seen.of(hybrid.EventConflict)
	if n := l.Figures().Rebuilt; n < 2900 || l.Figures().Conflicts != 0 || len(list) != 1 || !strings.Contains(list[0].Reason, "built anew") || !strings.Contains(list[0].Reason, `"api"`) {
		t.Errorf("%d rebuilt, told of %v", n, list)
	}
}

// Rules of one name that count differently, used side by side, are reported once, with both.
//
// Fault 87: counted, and logged once with both rules.
func TestConflictsAreToldOnce(t *testing.T) {
	for what, other := range map[string]*limit.Rule{
		"period":    limit.Must(limit.SlidingWindow("api", 20, time.Second)),
		"algorithm": limit.Must(limit.TokenBucket("api", 20, time.Minute, 20)),
	} {
		var log logbook
		var seen happenings
		l, err := hybrid.New(nil, hybrid.Options{Logger: slog.New(&log), OnEvent: seen.add})
		if err != nil {
			t.Fatal(err)
		}
		rule := limit.Must(limit.SlidingWindow("api", 20, time.Minute))
		plan := limit.Must(limit.SlidingWindow("api", 50, time.Minute))
		for range 20 {
			l.Allow("k", rule)
			l.Allow("k", plan)
		}
		if n := l.Figures().Conflicts; n != 0 {
			t.Errorf("%s: %d conflicts of plans", what, n)
		}
		for range 20 {
			l.Allow("k", other)
			l.Allow("k", rule)
		}
		if err := l.Shutdown(bg); err != nil {
			t.Fatal(err)
		}
		list := seen.of(hybrid.EventConflict)
		if l.Figures().Conflicts == 0 || len(list) != 1 || !strings.Contains(list[0].Reason, rule.String()) || !strings.Contains(list[0].Reason, other.String()) {
			t.Errorf("%s: %d conflicts, told of %v", what, l.Figures().Conflicts, list)
		}
		if warn, all := log.count(slog.LevelWarn); warn != 1 || all != 1 {
			t.Errorf("%s: log:\n%s", what, log.text())
		}
	}
}
