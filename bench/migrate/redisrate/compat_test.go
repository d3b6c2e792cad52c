package redisrate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/compat/redisrate"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// What docs/migrate/redis_rate.md says of package compat/redisrate.

// pair is redis_rate and our package in its place.
type pair struct {
	t      *testing.T
	theirs *redis_rate.Limiter
	ours   *redisrate.Limiter
	memory *hybrid.Limiter // that decides, if Redis does not
}

// onPair runs a test in a bubble with redis_rate and our package by a limiter of each kind.
func onPair(t *testing.T, test func(t *testing.T, p pair)) {
	for _, kind := range []string{"hybrid", "remote"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := bubble.Client(t, bubble.Start(t), 0)
				test(t, newPair(t, rdb, kind == "remote"))
			})
		})
	}
}

func newPair(t *testing.T, rdb *redis.Client, asks bool) pair {
	t.Helper()
	p := pair{t: t, theirs: redis_rate.NewLimiter(rdb)}
	if asks {
		p.ours = redisrate.From(limit.Must(remote.New(rdb, remote.Options{})))
	} else {
		p.memory = limit.Must(hybrid.New(rdb, hybrid.Options{Logger: slog.New(slog.DiscardHandler)}))
		p.ours = redisrate.From(p.memory)
		t.Cleanup(func() { _ = p.ours.Close() })
	}
	return p
}

// ask asks both for n requests, or for at most as many.
func (p pair) ask(key string, l redisrate.Limit, n int, most bool) (was *redis_rate.Result, is *redisrate.Result) {
	p.t.Helper()
	old, err := redis_rate.Limit(l), error(nil)
	if most {
		was, err = p.theirs.AllowAtMost(p.t.Context(), key, old, n)
	} else {
		was, err = p.theirs.AllowN(p.t.Context(), key, old, n)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if most {
		is, err = p.ours.AllowAtMost(p.t.Context(), key, l, n)
	} else {
		is, err = p.ours.AllowN(p.t.Context(), key, l, n)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return was, is
}

// reset lets both forget a key, ours after what is under way has arrived.
func (p pair) reset(key string) {
	p.t.Helper()
	if p.memory != nil {
		if err := p.memory.Flush(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := errors.Join(p.theirs.Reset(p.t.Context(), key), p.ours.Reset(p.t.Context(), key)); err != nil {
		p.t.Fatal(err)
	}
}

// same compares two answers. Of durations redis_rate loses digits.
func same(was *redis_rate.Result, is *redisrate.Result, within time.Duration) bool {
	close := func(a, b time.Duration) bool { return (a-b).Abs() <= within && (a == -1) == (b == -1) }
	return was.Allowed == is.Allowed && was.Remaining == is.Remaining && close(was.RetryAfter, is.RetryAfter) &&
		close(was.ResetAfter, is.ResetAfter) && redisrate.Limit(was.Limit) == is.Limit
}

// Its names have the same types and values as those of redis_rate.
func TestCompatNames(t *testing.T) {
	for _, n := range []int{0, 1, 7, -3} {
		for was, is := range map[redis_rate.Limit]redisrate.Limit{
			redis_rate.PerSecond(n): redisrate.PerSecond(n), redis_rate.PerMinute(n): redisrate.PerMinute(n), redis_rate.PerHour(n): redisrate.PerHour(n),
			{Rate: n, Burst: 2, Period: 90 * time.Second}: {Rate: n, Burst: 2, Period: 90 * time.Second}, {}: {},
		} {
			if was.String() != is.String() || was.IsZero() != is.IsZero() || redisrate.Limit(was) != is {
				t.Errorf("%v, %v", was, is)
			}
		}
	}
	var old redis_rate.Result // the compiler compares the fields
	_ = redisrate.Result{Limit: redisrate.Limit(old.Limit), Allowed: old.Allowed, Remaining: old.Remaining, RetryAfter: old.RetryAfter, ResetAfter: old.ResetAfter}
	type limiter[L, R any] interface {
		Allow(ctx context.Context, key string, lim L) (R, error)
		AllowN(ctx context.Context, key string, lim L, n int) (R, error)
		AllowAtMost(ctx context.Context, key string, lim L, n int) (R, error)
		Reset(ctx context.Context, key string) error
	}
	var _ limiter[redis_rate.Limit, *redis_rate.Result] = (*redis_rate.Limiter)(nil)
	var _ limiter[redisrate.Limit, *redisrate.Result] = (*redisrate.Limiter)(nil)
}

// The same calls at the same times have the same answers.
func TestCompatAnswers(t *testing.T) {
	onPair(t, func(t *testing.T, p pair) {
		rng := rand.New(rand.NewPCG(3, 5))
		refused, fewer := 0, 0
		for i := range 600 {
			// Never when a request comes back at that very instant: redis_rate may miss it.
			time.Sleep(time.Duration(rng.IntN(400))*time.Millisecond + 300*time.Microsecond)
			l := []redisrate.Limit{{Rate: 8, Burst: 20, Period: time.Second}, redisrate.PerMinute(40), {Rate: 5, Burst: 3, Period: 2 * time.Second}}[rng.IntN(3)]
			n, most := rng.IntN(6), rng.IntN(4) == 0
			was, is := p.ask(l.String(), l, n, most)
			if is.RetryAfter > 0 {
				refused++
			}
			switch {
			case most && n >= was.Allowed && was.Allowed > 0 && was.Remaining == 0:
				// redis_rate has taken the fraction of a request, too, or has 0.9999999 where there is one.
				if is.Allowed+is.Remaining-was.Allowed == 1 {
					fewer++
					was.Allowed, was.Remaining = is.Allowed, is.Remaining
				}
				was.ResetAfter = is.ResetAfter
				p.reset(l.String())
			case was.Remaining == is.Remaining-1 && was.RetryAfter == -1 && is.RetryAfter == -1:
				fewer++
				was.Remaining++
			}
			if !same(was, is, time.Millisecond) {
				t.Fatalf("%d: %d of %v, at most: %t: %+v, %+v", i, n, l, most, was, is)
			}
		}
		t.Logf("%d of 600 refused; %d times redis_rate says that one fewer remains", refused, fewer)
		if refused < 60 || refused > 540 || fewer > 120 {
			t.Error("too few or too many")
		}
	})
}

// The program before and the one after write the same.
func TestRealProgramsOfCompat(t *testing.T) {
	server := redistest.Start(t)
	was, is := run(t, "before", server.Addr()), run(t, "after", server.Addr())
	if was != is || strings.Count(was, "\n") != 21 {
		t.Errorf("%s\nand\n%s", was, is)
	}
}

// run builds the program of a directory, and returns what it writes.
func run(t *testing.T, dir, redis string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), dir)
	if out, err := exec.Command("go", "build", "-o", program, "./"+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program, redis)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return string(out)
}
