package adminlimit_test

import (
	"encoding/json"
	"html"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A Redis that refuses this program is not one that cannot be reached: the page says what it wants.
func TestRedisRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		server []string
		client redis.Options
		want   string
	}{
		"no password":    {[]string{"--requirepass", "secret"}, redis.Options{}, "Redis refuses this program: it wants a password"},
		"wrong password": {[]string{"--requirepass", "secret"}, redis.Options{Password: "other"}, "Redis refuses this program: it does not know this user or password"},
		"no permission":  {[]string{"--user", "default", "on", "nopass", "~*", "+ping", "+hello", "+client"}, redis.Options{}, "Redis refuses this program: the user may not use what the limiter needs: see the permissions in docs/redis.md"},
		"full":           {[]string{"--maxmemory", "1", "--maxmemory-policy", "noeviction"}, redis.Options{}, "Redis answers with an error: oom"},
	} {
		t.Run(name, func(t *testing.T) {
			c.client.Addr = redistest.Start(t, c.server...).Addr()
			client := redis.NewClient(&c.client)
			defer client.Close()
			lim := limit.Must(hybrid.New(client, hybrid.Options{}))
			defer lim.Close()
			s := serve(t, lim, adminlimit.Options{})
			for deadline := time.Now().Add(time.Minute); lim.State().Mode != hybrid.Degraded && time.Now().Before(deadline); {
				lim.Allow("k", five)
				<-time.After(20 * time.Millisecond)
			}
			var now struct{ Means string }
			if err := json.Unmarshal([]byte(s.get(t, "/limits/now.json")), &now); err != nil || !strings.HasPrefix(now.Means, c.want) || !strings.HasSuffix(now.Means, ". The fallback decides, and nothing is lost.") {
				t.Errorf("%q, want %q, %v", now.Means, c.want, err)
			}
			contains(t, html.UnescapeString(s.get(t, "/limits/")), c.want, "; 1 node was alive")
		})
	}
}
