package fresh

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store notes what is fetched.
type store struct {
	mu    sync.Mutex
	calls int
	keys  map[string]int
}

func (s *store) Preload(_ context.Context, keys []string, rule *limit.Rule) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	for _, k := range keys {
		s.keys[rule.Name()+"/"+k]++
	}
	return nil
}

func rule(name string) *limit.Rule {
	return limit.Must(limit.TokenBucket(name, 1, time.Second, 1))
}

func TestLooksAreFetchedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{keys: map[string]int{}}
		f := New(s)
		defer f.Close()
		a, b := rule("a"), rule("b")
		f.Look("first", a)
		synctest.Wait()
		for range 10 {
			for _, k := range []string{"x", "y"} {
				f.Look(k, a)
				f.Look(k, b)
			}
		}
		time.Sleep(pause)
		synctest.Wait()
		if want := map[string]int{"a/first": 1, "a/x": 1, "a/y": 1, "b/x": 1, "b/y": 1}; !maps.Equal(s.keys, want) || s.calls != 3 {
			t.Errorf("%d calls for %v, want 3 for %v", s.calls, s.keys, want)
		}
	})
}

func TestTooManyLooksAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{keys: map[string]int{}}
		f := New(s)
		r := rule("r")
		for i := range 10 * maxWaiting {
			f.Look(fmt.Sprint(i), r)
		}
		time.Sleep(time.Minute)
		f.Close()
		if n := len(s.keys); n < maxWaiting || n > 3*maxWaiting {
			t.Errorf("%d keys are fetched, want about %d", n, maxWaiting)
		}
		for range 2 * maxWaiting { // closed
			f.Look("x", r)
		}
	})
}
