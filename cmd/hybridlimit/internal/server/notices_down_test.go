package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A server whose user may not publish is ready and says that notices are down, until it may again.
// One without notices is not.
func TestNoticesDown(t *testing.T) {
	redis := redistest.Start(t)
	allow := func(right string) {
		t.Helper()
		if _, err := redis.Do("ACL", "SETUSER", "default", right); err != nil {
			t.Fatal(err)
		}
	}
	allow("-publish")
	n := begin(t, redis.Addr(), nil).synced()
	without := begin(t, redis.Addr(), func(o *Options) { o.Limiter.PollOnly = true }).synced()
	says := func(path, text string) func() bool {
		return func() bool {
			code, body := n.get(path)
			return code == http.StatusOK && strings.Contains(body, text)
		}
	}
	eventually(t, "it says so", says("/readyz", `"mode":"synced","notices_down":"noperm"`))
	eventually(t, "the metric says so", says("/metrics", "\nhybridlimit_notices_down{limiter=\"serve\"} 1\n"))
	if _, body := without.get("/readyz"); strings.Contains(body, "notices_down") {
		t.Errorf("without notices: %s", body)
	}
	allow("+publish")
	eventually(t, "it hears", says("/metrics", "\nhybridlimit_notices_down{limiter=\"serve\"} 0\n"))
}
