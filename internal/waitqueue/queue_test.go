package waitqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rule = limit.Must(limit.SlidingWindow("w", 10, time.Second))

// every admits one reservation in each d, of those that may wait for it, and notes how many
// units others were said to be waiting for.
type every struct {
	mu    sync.Mutex // protects all below
	d     time.Duration
	next  time.Time
	ahead []int64
}

func (e *every) limiter() Limiter {
	return Limiter{
		Reserve: func(t counter.Terms) *limit.Reservation {
			e.mu.Lock()
			defer e.mu.Unlock()
			wait := time.Until(e.next)
			if wait <= 0 {
				e.next = time.Now().Add(e.d)
			}
			return limit.NewReservation(wait <= 0, limit.Result{Allowed: wait <= 0, RetryAfter: max(wait, 0)}, nil)
		},
		Estimate: func(ahead, n int64) int64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.ahead = append(e.ahead, ahead)
			return ahead * int64(e.d)
		},
		Unclaim: func() {},
	}
}

// Callers of one key are served in the order in which they came, one in each second.
func TestOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var qs Queues
		defer qs.Close()
		e := &every{d: time.Second, next: time.Now().Add(time.Second)}
		var served []int
		begin := time.Now()
		for i := range 5 {
			go func() {
				if err := qs.Wait(context.Background(), "k", rule, 1, e.limiter()); err != nil {
					t.Error(err)
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				served = append(served, i)
			}()
			synctest.Wait()
		}
		if callers, queues := qs.Waiting(); callers != 5 || queues != 1 {
			t.Errorf("%d callers in %d queues, want 5 in 1", callers, queues)
		}
		time.Sleep(10 * time.Second)
		e.mu.Lock()
		defer e.mu.Unlock()
		if !slices.Equal(served, []int{0, 1, 2, 3, 4}) || e.next.Sub(begin) != 6*time.Second {
			t.Errorf("served %v, the last after %v", served, e.next.Sub(begin)-time.Second)
		}
		if !slices.Equal(e.ahead, []int64{1, 2, 3, 4}) {
			t.Errorf("units ahead of the second caller and later ones: %v", e.ahead)
		}
		if callers, queues := qs.Waiting(); callers != 0 || queues != 0 {
			t.Errorf("%d callers in %d queues are left", callers, queues)
		}
	})
}

// A caller whose turn would come after its deadline does not wait. When one gives up, the
// next is served.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var qs Queues
		defer qs.Close()
		e := &every{d: time.Minute, next: time.Now().Add(time.Hour)}
		first, giveUp := context.WithCancel(context.Background())
		errs := make(chan error, 2)
		go func() { errs <- qs.Wait(first, "k", rule, 5, e.limiter()) }()
		synctest.Wait()
		soon, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var late *limit.WaitError
		if err := qs.Wait(soon, "k", rule, 1, e.limiter()); !errors.As(err, &late) || late.Need != 5*time.Minute {
			t.Errorf("behind 5 units, a minute each: %v", err)
		}
		go func() { errs <- qs.Wait(context.Background(), "k", rule, 1, e.limiter()) }()
		synctest.Wait()
		giveUp()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		e.mu.Lock()
		e.next = time.Now()
		e.mu.Unlock()
		if err := <-errs; err != nil {
			t.Errorf("who came next got %v", err)
		}
	})
}

// Close ends the waiting of all, and nobody waits after it.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var qs Queues
		e := &every{d: time.Minute, next: time.Now().Add(time.Hour)}
		errs := make(chan error, 3)
		for range 3 {
			go func() { errs <- qs.Wait(context.Background(), "k", rule, 1, e.limiter()) }()
		}
		synctest.Wait()
		qs.Close()
		for range 3 {
			if err := <-errs; !errors.Is(err, limit.ErrClosed) {
				t.Errorf("a waiter got %v", err)
			}
		}
		if err := qs.Wait(context.Background(), "k", rule, 1, e.limiter()); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("a late caller got %v", err)
		}
	})
}
