package hybrid_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Servers that answer, but not with what was asked for.

// What an operator has done wrong: a password that appears or is wrong, rights
// that are missing.
//
// Fault 25: degraded with that reason, one line that says so however often it
// is tried again, and everything is reported once it is mended.
// Fault 120: the words of errors in other versions.
func TestRealMisconfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ breaks, mends, reason string }{
		"no password":    {"CONFIG SET requirepass secret", "CONFIG SET requirepass ", "noauth"},
		"wrong password": {"ACL SETUSER default on >secret ~* &* +@all", "ACL SETUSER default on nopass ~* &* +@all", "wrongpass"},
		"command":        {"ACL SETUSER default -evalsha", "ACL SETUSER default +@all", "noperm"},
		"keys":           {"ACL SETUSER default resetkeys ~elsewhere*", "ACL SETUSER default ~*", "noperm"},
		"inner command":  {"ACL SETUSER default -set", "ACL SETUSER default +@all", "noperm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			run := commander(t, srv.Addr())
			co := clientOptions(srv.Addr())
			if c.reason == "wrongpass" {
				co.Username, co.Password = "default", "guess"
			}
			var log logbook
			l := newLimiter(t, client(t, co), hybrid.Options{MaxBackoff: 100 * time.Millisecond, Logger: slog.New(&log)})
			eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
			var all books
			all.take(l, "k", 3)
			flush(t, l)
			run(strings.Split(c.breaks, " ")...)
			run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			all.take(l, "k", 4)
			eventually(t, "degraded: "+c.reason, func() bool {
				s := l.State()
				return s.Mode == hybrid.Degraded && s.Reason == c.reason
			})
			failed := l.Figures().Failures
			eventually(t, "tried again and again", func() bool { return l.Figures().Failures >= failed+10 })
			// A connection that was killed may be what degrades; the reason
			// that needs an operator is delivered all the same, once.
			warn := log.alarms()
			if said := strings.Count(log.text(), "reason="+c.reason+" "); said != 1 || warn > 2 {
				t.Errorf("%q was said %d times, with %d warnings:\n%s", c.reason, said, warn, log.text())
			}
			run(strings.Split(c.mends, " ")...)
			all.settles(t, l, srv.Addr())
		})
	}
}

// commander returns a function that runs commands on a connection that stays,
// with the rights that it began with.
func commander(t *testing.T, addr string) func(words ...string) {
	t.Helper()
	if err := dial(t, addr).Do(bg, "ACL", "SETUSER", "admin", "on", "nopass", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	o := clientOptions(addr)
	o.Username, o.Password = "admin", "x"
	rdb := client(t, o)
	return func(words ...string) {
		t.Helper()
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		if err := rdb.Do(bg, args...).Err(); err != nil {
			t.Fatalf("%v: %v", words, err)
		}
	}
}
