package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A user is at his limit. After reset or set by the command line his next request is admitted on
// every node, also on one that has not been asked for the key for longer than its view lasts.
func TestResetIsHeardWithoutBeingAsked(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const timeout = 500 * time.Millisecond
	rule := limit.Must(limit.SlidingWindow("api", 5, time.Minute))
	bucket := limit.Must(limit.TokenBucket("bucket", limit.Tokens{Burst: 5, Refill: 1, Per: time.Hour}))
	var nodes []*hybrid.Limiter
	for range 2 {
		lim := limit.Must(hybrid.New(client(t, s), hybrid.Options{CommandTimeout: timeout}))
		t.Cleanup(func() { lim.Shutdown(t.Context()) })
		nodes = append(nodes, lim)
		await(t, "a node to be synchronised", func() bool { return lim.State().Mode == hybrid.Synced })
	}
	cases := []struct {
		key  string
		idle time.Duration // between the last request and the command
		args []string
	}{
		{"asked just now", 0, []string{"reset", "asked just now"}},
		{"idle", 8 * time.Second, []string{"reset", "idle"}},
		{"set", 0, []string{"set", "set", "2"}},
	}
	for _, c := range cases {
		for _, rule := range []*limit.Rule{rule, bucket} {
			for range 5 {
				nodes[0].Allow(c.key, rule)
			}
			for _, lim := range nodes {
				await(t, "the user to be refused on each node", func() bool { return !lim.Allow(c.key, rule) })
			}
		}
	}
	text := map[*limit.Rule]string{rule: "--rule=api=sliding-window,5/1m", bucket: "--rule=bucket=token-bucket,1/1h,burst=5"}
	for _, c := range cases {
		<-time.After(c.idle)
		for _, rule := range []*limit.Rule{rule, bucket} {
			cli(t, with(to(s), append(c.args[:len(c.args):len(c.args)], text[rule])...)...).want(t, exitOK)
		}
		// A lag, two exchanges, and half a second for a busy machine.
		<-time.After(time.Second + 2*timeout + 500*time.Millisecond)
		for i, lim := range nodes {
			for _, rule := range []*limit.Rule{rule, bucket} {
				if res := lim.Take(c.key, rule, 1); !res.Allowed {
					t.Errorf("%s: node %d still refuses: %+v", strings.Join(c.args, " "), i, res)
				}
			}
		}
	}
}
