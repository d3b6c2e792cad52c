package hybrid_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// wrapped is a client of which nobody knows what it does.
type wrapped struct{ redis.UniversalClient }

// The client dials by its own settings: a dialer of ours would not see the TLS of options that were copied.
func TestClientDialsByItself(t *testing.T) {
	if hybrid.RedisOptions("a").Dialer != nil || hybrid.RedisFailoverOptions("m", "a").Dialer != nil || hybrid.RedisClusterOptions("a").Dialer != nil {
		t.Error("the recommended settings have a dialer")
	}
}

// Settings that make deadlines void or repeat calls are reported; the recommended ones, and
// those that cannot be read, are not.
func TestClientSettings(t *testing.T) {
	const nobody = "127.0.0.1:1"
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		want []string
	}{
		"recommended":           {redis.NewClient(hybrid.RedisOptions(nobody)), nil},
		"recommended, Sentinel": {redis.NewFailoverClient(hybrid.RedisFailoverOptions("master", nobody)), nil},
		"recommended, Cluster":  {redis.NewClusterClient(hybrid.RedisClusterOptions(nobody)), nil},
		"plain":                 {redis.NewClient(&redis.Options{Addr: nobody}), []string{"ContextTimeoutEnabled", "MaxRetries is 3", "DialerRetries is 5"}},
		"plain, Sentinel": {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "master", SentinelAddrs: []string{nobody}}),
			[]string{"ContextTimeoutEnabled", "MaxRetries is 3", "DialerRetries is 5"}},
		"plain, Cluster":   {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nobody}}), []string{"ContextTimeoutEnabled", "DialerRetries is 5"}},
		"retries":          {redis.NewClient(&redis.Options{Addr: nobody, ContextTimeoutEnabled: true, MaxRetries: 1}), []string{"MaxRetries is 1", "DialerRetries is 5"}},
		"retries, Cluster": {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nobody}, ContextTimeoutEnabled: true, MaxRetries: 2}), []string{"MaxRetries is 2", "DialerRetries is 5"}},
		"plain, Ring": {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": nobody}}),
			[]string{"ContextTimeoutEnabled", "MaxRetries is 3"}},
		"nobody knows which": {wrapped{redis.NewClient(&redis.Options{Addr: nobody})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits until nobody has answered
			var seen happenings
			l, err := hybrid.New(c.rdb, hybrid.Options{OnEvent: seen.add})
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Shutdown(bg) // nobody is there
			_ = c.rdb.Close()
			list := seen.of(hybrid.EventClient)
			if len(list) != len(c.want) {
				t.Fatalf("%v, want %q", list, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(list[i].Reason, want) {
					t.Errorf("%v, want %q", list[i], want)
				}
			}
		})
	}
}
