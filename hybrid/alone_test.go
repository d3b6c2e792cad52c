package hybrid_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Processes that Redis refuses from their start: each says that it limits by itself, at once and every five
// minutes, and how many checks it has decided so.
//
// Fault 113: said at once and every five minutes, with the number of checks.
func TestRefusedProcessesSayThatTheyAreAlone(t *testing.T) {
	five := limit.Must(limit.SlidingWindow("five", 5, 24*time.Hour))
	for answer, reason := range map[string]string{
		"WRONGPASS invalid username-password pair or user is disabled.":       "wrongpass",
		"NOAUTH Authentication required.":                                     "noauth",
		"NOPERM this user has no permissions to run the 'evalsha' command":    "noperm",
		"ERR unknown command 'evalsha', with args beginning with: ":           "unsupported",
		"DENIED Redis is running in protected mode because protected mode is": "denied",
	} {
		for i, c := range []struct {
			o        hybrid.Options
			admitted int
			effect   string
		}{
			{hybrid.Options{}, 10, "this node admits the whole limit by itself, because it knows of no other: see ExpectedNodes"},
			{hybrid.Options{ExpectedNodes: 2}, 4, "this node admits 1/2 of the limit by itself"},
			{hybrid.Options{Fallback: hybrid.FullLimit, ExpectedNodes: 2}, 10, "this node admits the whole limit by itself"},
			{hybrid.Options{Fallback: hybrid.FailOpen}, 40, "every check passes that is not larger than the limit"},
			{hybrid.Options{Fallback: hybrid.FailClosed}, 0, "every check is refused"},
		} {
			if i > 0 && reason != "wrongpass" {
				break // what the policies do is the same for each answer
			}
			t.Run(fmt.Sprint(reason, " ", c.o.Fallback, " ", c.o.ExpectedNodes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					w.redis.SetError(answer)
					defer w.redis.SetError("")
					sum := 0
					var logs [2]logbook
					for i := range logs {
						o := c.o
						o.Logger = slog.New(&logs[i])
						n := w.node(o, nil)
						time.Sleep(100 * time.Millisecond)
						wantMode(t, n.Limiter, hybrid.Degraded)
						sum += admitted(n.Limiter, "k", five, 20)
					}
					if sum != c.admitted {
						t.Errorf("%d admitted by two processes, want %d", sum, c.admitted)
					}
					time.Sleep(11 * time.Minute)
					for i := range logs {
						text := logs[i].text()
						if errs, all := logs[i].count(slog.LevelError); errs != 3 || all != 3 || strings.Count(text, "ERROR rate limiter degraded reason="+reason+" ") != 3 ||
							strings.Count(text, "effect="+c.effect+" ") != 3 || strings.Count(text, "checks=20\n") != 1 || strings.Count(text, "checks=0\n") != 1 {
							t.Errorf("want a line at once and two that repeat it:\n%s", text)
						}
					}
				})
			})
		}
	}
}
