package hybrid_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// roomWays are the calls by which a process without views makes room for a key. The reservation
// holds one unit of it.
var roomWays = map[string]func(l *remote.Limiter, key string, rule *limit.Rule, r limit.Reservation) error{
	"reset": func(l *remote.Limiter, key string, rule *limit.Rule, _ limit.Reservation) error {
		return l.Reset(bg, key, rule)
	},
	"set": func(l *remote.Limiter, key string, rule *limit.Rule, _ limit.Reservation) error {
		return l.Set(bg, key, rule, 3)
	},
	"refund": func(l *remote.Limiter, key string, rule *limit.Rule, _ limit.Reservation) error {
		_, err := l.Refund(bg, key, rule, 1)
		return err
	},
	"cancel": func(_ *remote.Limiter, _ string, _ *limit.Rule, r limit.Reservation) error {
		return r.Cancel(bg)
	},
}

// learnsOfRoom checks that a node which refuses a used-up key admits it again within most of when
// each of the calls has made room.
func learnsOfRoom(t *testing.T, n *hybrid.Limiter, far *remote.Limiter, most time.Duration) {
	t.Helper()
	ask := func(key string, rule *limit.Rule, d time.Duration) bool {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
			if n.Allow(key, rule) {
				return true
			}
		}
		return false
	}
	for name, way := range roomWays {
		for _, rule := range tens {
			_, err := far.Take(bg, name, rule, 9)
			r, err2 := far.Reserve(bg, name, rule)
			if err := errors.Join(err, err2, n.Preload(bg, []string{name}, rule)); err != nil {
				t.Fatal(err)
			}
			if ask(name, rule, 300*time.Millisecond) {
				t.Fatalf("%s under %v: a used-up key is admitted", name, rule)
			}
			if err := way(far, name, rule, r); err != nil {
				t.Fatalf("%s under %v: %v", name, rule, err)
			}
			if !ask(name, rule, most) {
				t.Errorf("%s under %v: still refused after %v: %+v, %+v", name, rule, most, n.Peek(name, rule), n.State())
			}
		}
	}
}

// Package remote makes room for a key that a node refuses, and asks for only each 5 s: the node
// hears of it at once, asks with its next collection, and admits.
func TestRoomMadeByRemote(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.fleet(1, hybrid.Options{})[0]
		far, err := remote.New(w.admin, remote.Options{})
		if err != nil {
			t.Fatal(err)
		}
		// The default SyncInterval. The exchanges take no time here.
		learnsOfRoom(t, n.Limiter, far, 100*time.Millisecond+20*time.Millisecond)
	})
}
