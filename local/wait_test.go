package local

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// tenPerSecond are one rule of each kind, of the same limit.
func tenPerSecond() []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.TokenBucket("f", 10, time.Second, 10)),
		limit.Must(limit.SlidingWindow("s", 10, time.Second)),
		limit.Must(limit.FixedWindow("x", 10, time.Second)),
		limit.Must(limit.SlidingLog("l", 10, time.Second)),
	}
}

func inBubbles(t *testing.T, test func(t *testing.T, l *Limiter, r *limit.Rule)) {
	for _, r := range tenPerSecond() {
		t.Run(arith.Of(r).Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := New(Options{Clock: wall{}})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				test(t, l, r)
			})
		})
	}
}

// wall is the clock of a bubble, which begins long before the process did.
type wall struct{}

func (wall) Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

var (
	bg        = context.Background()
	noContext context.Context // what a caller passes who has none
)

func TestWaitAdmitsInTurn(t *testing.T) {
	inBubbles(t, func(t *testing.T, l *Limiter, r *limit.Rule) {
		ref := limittest.NewReference(r)
		ref.Add(time.Now().UnixNano(), 10)
		l.Take("k", r, 10)
		var mu sync.Mutex
		type served struct {
			at int64
			nr int
		}
		var order []served
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				n := int64(1 + i%3)
				if err := l.WaitN(bg, "k", r, n); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				now := time.Now().UnixNano()
				if room := ref.Room(now); room < n {
					t.Errorf("%d units of caller %d admitted, there was room for %d", n, i, room)
				}
				ref.Add(now, n)
				order = append(order, served{now, i})
			})
			synctest.Wait()
		}
		began := time.Now()
		all.Wait()
		// Of those who were served at the same time any may say so first.
		slices.SortFunc(order, func(a, b served) int { return cmp.Or(cmp.Compare(a.at, b.at), a.nr-b.nr) })
		for i, k := range order {
			if i != k.nr {
				t.Fatalf("served in the order %v", order)
			}
		}
		// 79 units at 10 a second, if no time is lost between two callers. A
		// window gives some away at the end of each: where the next do not fit.
		took, most := time.Since(began), 9*time.Second
		if arith.Of(r).Algorithm != arith.TokenBucket {
			most = 10 * time.Second
		}
		if took < 7*time.Second || took > most {
			t.Errorf("took %v", took)
		}
		if callers, lines := l.queues.Waiting(); callers != 0 || lines != 0 {
			t.Errorf("still %d waiting, in %d lines", callers, lines)
		}
	})
}

// Those who ask all the time, without waiting, do not get ahead of one who waits.
func TestWaitIsNotStarvedByOthers(t *testing.T) {
	inBubbles(t, func(t *testing.T, l *Limiter, r *limit.Rule) {
		stop := make(chan struct{})
		var spin sync.WaitGroup
		for range 3 {
			spin.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						l.Allow("k", r)
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		for _, n := range []int64{1, 5, 10} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(bg, 20*time.Second)
			if err := l.WaitN(ctx, "k", r, n); err != nil {
				t.Error(err)
			}
			cancel()
			if took := time.Since(began); took > 2200*time.Millisecond {
				t.Errorf("waited %v for %d units of 10 a second", took, n)
			}
		}
		close(stop)
		spin.Wait()
		// Nothing is kept for anybody any more.
		time.Sleep(3 * time.Second)
		if left := l.Peek("k", r).Remaining; left != 10 {
			t.Errorf("%d remain of a key that nobody uses", left)
		}
	})
}

// Fault 58: a context that ends while its caller waits gives back what was
// booked, once, and the next in line takes its place.
func TestWaitCanceled(t *testing.T) {
	inBubbles(t, func(t *testing.T, l *Limiter, r *limit.Rule) {
		l.Take("k", r, 10)
		first, giveUp := context.WithCancel(bg)
		var all sync.WaitGroup
		var took time.Duration
		began := time.Now()
		all.Go(func() {
			if err := l.WaitN(first, "k", r, 9); !errors.Is(err, context.Canceled) {
				t.Errorf("first: %v", err)
			}
		})
		synctest.Wait()
		second, cancel := context.WithCancel(bg)
		all.Go(func() {
			if err := l.WaitN(second, "k", r, 9); !errors.Is(err, context.Canceled) {
				t.Errorf("second: %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if err := l.Wait(bg, "k", r); err != nil {
				t.Errorf("third: %v", err)
			}
			took = time.Since(began)
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
		cancel()
		synctest.Wait()
		giveUp()
		all.Wait()
		if callers, _ := l.queues.Waiting(); callers != 0 {
			t.Error("somebody is left in the line")
		}
		// The third is served as if the others had never come.
		ref := limittest.NewReference(r)
		ref.Add(began.UnixNano(), 10)
		if at := began.Add(took - time.Millisecond).UnixNano(); took > 2*time.Second || ref.Room(at) > 0 {
			t.Errorf("third served after %v", took)
		}
	})
}

// A deadline that cannot be met is an error at once, and says what it would
// have taken; whoever comes first is counted in.
func TestWaitDeadline(t *testing.T) {
	inBubbles(t, func(t *testing.T, l *Limiter, r *limit.Rule) {
		l.Take("k", r, 10)
		began := time.Now()
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		err := l.WaitN(ctx, "k", r, 5)
		var late *limit.WaitError
		if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if time.Since(began) != 0 {
			t.Errorf("said so after %v", time.Since(began))
		}
		if want := l.Take("k", r, 5).RetryAfter; late.Need != want || late.Key != "k" {
			t.Errorf("%+v, want %v", late, want)
		}
		// A bit longer than it says is enough, and a bit less is not.
		for _, less := range []time.Duration{1, -1} {
			ctx, cancel := context.WithTimeout(bg, late.Need-time.Since(began)-less)
			defer cancel()
			if err := l.WaitN(ctx, "k", r, 5); (err == nil) != (less < 0) {
				t.Errorf("%d ns less: %v", less, err)
			}
			if less == 1 && time.Since(began) > 0 {
				t.Errorf("took %v to say so", time.Since(began))
			}
		}
		// Behind a single one, too, whether or not it has booked.
		alone, stop := context.WithCancel(bg)
		var one sync.WaitGroup
		l.Take("one", r, 10)
		one.Go(func() { _ = l.WaitN(alone, "one", r, 10) })
		synctest.Wait()
		ctx, cancel = context.WithTimeout(bg, 900*time.Millisecond)
		defer cancel()
		began = time.Now()
		if err := l.WaitN(ctx, "one", r, 10); !errors.As(err, &late) || late.Need <= 900*time.Millisecond || time.Since(began) != 0 {
			t.Errorf("behind one: %v after %v", err, time.Since(began))
		}
		stop()
		one.Wait()
		// Behind others it takes longer, by what they take.
		l.Take("line", r, 10)
		var all sync.WaitGroup
		crowd, leave := context.WithCancel(bg)
		for range 5 {
			all.Go(func() { _ = l.WaitN(crowd, "line", r, 10) })
			synctest.Wait()
		}
		ctx, cancel = context.WithTimeout(bg, 4500*time.Millisecond)
		defer cancel()
		began = time.Now()
		if err := l.Wait(ctx, "line", r); !errors.As(err, &late) || late.Need < 4600*time.Millisecond || late.Need > 7*time.Second || time.Since(began) != 0 {
			t.Errorf("behind 50 units: %v after %v", err, time.Since(began))
		}
		leave()
		all.Wait()
	})
}

func TestWaitRefuses(t *testing.T) {
	inBubbles(t, func(t *testing.T, l *Limiter, r *limit.Rule) {
		ended, cancel := context.WithCancel(bg)
		cancel()
		var zero Limiter
		for _, c := range []struct {
			name string
			err  error
			want error
		}{
			{"negative", l.WaitN(bg, "k", r, -1), limit.ErrInvalidN},
			{"most negative", l.WaitN(bg, "k", r, math.MinInt64), limit.ErrInvalidN},
			{"nil rule", l.Wait(bg, "k", nil), limit.ErrNilRule},
			{"zero rule", l.Wait(bg, "k", new(limit.Rule)), limit.ErrNilRule},
			{"zero limiter", zero.Wait(bg, "k", r), limit.ErrClosed},
			{"more than there are", l.WaitN(bg, "k", r, 11), limit.ErrTooMany},
			{"the most", l.WaitN(bg, "k", r, math.MaxInt64), limit.ErrTooMany},
			{"ended", l.Wait(ended, "k", r), context.Canceled},
			{"ended, for nothing", l.WaitN(ended, "k", r, 0), context.Canceled},
			{"nil context", l.WaitN(noContext, "nil", r, 10), nil},
			{"nothing", l.WaitN(bg, "k", r, 0), nil},
			{"dry run", l.WaitN(bg, "nil", r.DryRun(), 5), nil},
		} {
			if !errors.Is(c.err, c.want) || (c.err == nil) != (c.want == nil) {
				t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
			}
		}
		if left := l.Peek("k", r).Remaining; left != 10 {
			t.Errorf("%d remain", left)
		}
	})
}

// Closing ends the waiting, and gives back what was booked.
func TestWaitEndsWithClose(t *testing.T) {
	inBubbles(t, func(t *testing.T, l *Limiter, r *limit.Rule) {
		l.Take("k", r, 10)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := l.WaitN(bg, "k", r, 10); !errors.Is(err, limit.ErrClosed) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		before := time.Now()
		l.Close()
		all.Wait()
		if time.Since(before) != 0 {
			t.Errorf("closed after %v", time.Since(before))
		}
		if err := l.Wait(bg, "k", r); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := l.Wait(bg, "other", r); err != nil {
			t.Errorf("after Close, with room: %v", err)
		}
		if res := l.Take("k", r, 10); res.RetryAfter > 2*time.Second || res.RetryAfter == 0 {
			t.Errorf("what was booked is still there: %+v", res)
		}
	})
}

// Callers come, wait, take, give up and hand back as they please: never more is
// admitted than by the definition, and in the end exactly that much counts.
func TestWaitAgainstReference(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			r := tenPerSecond()[seed%4]
			l, err := New(Options{Clock: wall{}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var mu sync.Mutex
			ref := limittest.NewReference(r)
			admit := func(how string, n int64) {
				mu.Lock()
				defer mu.Unlock()
				now := time.Now().UnixNano()
				if room := ref.Room(now); n > room {
					t.Errorf("seed %d: %s: %d admitted of %d", seed, how, n, room)
				}
				ref.Add(now, n)
			}
			var all sync.WaitGroup
			for range 60 {
				n, patience := 1+rng.Int64N(6), time.Duration(rng.Int64N(3e9))
				switch rng.IntN(4) {
				case 0:
					if l.AllowN("k", r, n) {
						admit("allow", n)
					}
				default:
					all.Go(func() {
						ctx, cancel := context.WithCancel(bg)
						defer time.AfterFunc(patience, cancel).Stop()
						defer cancel()
						if l.WaitN(ctx, "k", r, n) == nil {
							admit("wait", n)
						}
					})
				}
				time.Sleep(time.Duration(rng.Int64N(4e8)))
			}
			all.Wait()
			time.Sleep(time.Millisecond) // the last of them may have given up just now
			if left, want := l.Take("k", r, 0).Remaining, ref.Room(time.Now().UnixNano()); left != want {
				t.Errorf("seed %d, %v: %d remain in the end, want %d", seed, r, left, want)
			}
		})
	}
}
