package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// The server answers while Redis is killed, dead, and back; its answers are right by the
// fallback policy; and afterwards Redis knows what was admitted meanwhile.
func TestOutage(t *testing.T) {
	redis := redistest.Start(t)
	n := begin(t, redis.Addr(), nil).synced()
	for _, ask := range []func(string) bool{n.take, n.ask} {
		for i := range 4 {
			if !ask("before") {
				t.Fatalf("%d is refused", i)
			}
		}
	}
	eventually(t, "all is reported", func() bool { return n.server.Limiter().Stats().PendingUnits == 0 })
	redis.Kill()
	other := 0
	eventually(t, "degraded", func() bool {
		other++ // other keys, so that there is something to report
		n.take(fmt.Sprint("other", other))
		n.ask(fmt.Sprint("other", other))
		return n.server.Limiter().State().Mode == hybrid.Degraded
	})
	if code, body := n.get("/readyz"); code != http.StatusOK || !strings.Contains(body, `"mode":"degraded"`) {
		t.Errorf("%d, %s: the server must stay ready", code, body)
	}
	for name, ask := range map[string]func(string) bool{"resp": n.take, "rls": n.ask} {
		if got := admits(t, ask, "before"); got != 6 { // the only node has the whole limit
			t.Errorf("%s: %d more are admitted in an outage, want 6", name, got)
		}
		if got := admits(t, ask, "new"); got != 10 {
			t.Errorf("%s: %d of a new key are admitted in an outage, want 10", name, got)
		}
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "synced again", func() bool { n.take("new"); return n.server.Limiter().State().Mode == hybrid.Synced })
	eventually(t, "all is reported again", func() bool { return n.server.Limiter().Stats().PendingUnits == 0 })
	if n.take("before") || n.take("new") || n.ask("before") || n.ask("new") {
		t.Error("a key is admitted again although its limit is used up")
	}
	next := begin(t, redis.Addr(), nil).synced()
	for _, key := range []string{"before", "new"} {
		eventually(t, "another server knows of "+key, func() bool { return next.command("HL.TAKE", "api", key, "0")[2] == 0 && !next.ask(key) })
	}
}
