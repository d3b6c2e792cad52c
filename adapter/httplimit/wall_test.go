package httplimit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// wallClock is one whose wall clock was set after the start.
type wallClock struct {
	*clock.Manual
	ahead time.Duration
}

func (c wallClock) Ahead() time.Duration { return c.ahead }

// Fields with a time of day have that of the wall clock, also if it was set after the start.
//
// Fault 35: fields of a response after the wall clock was set.
func TestFieldsByTheWallClock(t *testing.T) {
	lim, m := newLimiter(t)
	c := wallClock{m, 3 * time.Hour}
	s := server(t, protect(t, lim, Options{Headers: XRateLimitHeaders, Clock: c}, nil, Limit{Rule: perMinute("a", 1), Key: By(byKey)}))
	get(t, s, "/", "Key: k").want(t, 200, fmt.Sprint("X-RateLimit-Reset: ", noon.Add(3*time.Hour).Unix()+60))

	used := int64(0)
	tr := &follower{setTo{limit.WithContext(lim), &used}, tenPerSecond, time.Minute, c, time.Second}
	until := noon.Add(3*time.Hour + 7*time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
	if err := tr.follow(t.Context(), "k", says(429, "Retry-After: "+until), 0); err != nil || used != tenPerSecond.Limit()-1+70 {
		t.Errorf("%d units for 7 s at ten a second, %v", used, err)
	}
}

// setTo is a limiter that writes down what it is set to.
type setTo struct {
	limit.ContextLimiter
	used *int64
}

func (s setTo) Set(_ context.Context, _ string, _ *limit.Rule, used int64) error {
	*s.used = used
	return nil
}
