package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

const exactLimits = `
rules:
  api: {algorithm: sliding-window, limit: 10, per: 24h, exact: true}
---
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10, exact: true}}
...
`

// beginExact starts a server whose limits are exact.
func beginExact(t *testing.T, addr string) *node {
	t.Helper()
	n := begin(t, addr, func(o *Options) { write(t, o.RulesPath, exactLimits) })
	return n.synced()
}

// post posts a check and returns the status.
func (n *node) post(body string) int {
	n.Helper()
	res, err := http.Post("http://"+n.server.o.Check.Addr().String()+"/check", "application/json", strings.NewReader(body))
	if err != nil {
		n.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 && !bytes.Contains(text, []byte(`OVER_LIMIT`)) && !bytes.Contains(text, []byte(`"allowed":false`)) && !bytes.Contains(text, []byte(`"status":503`)) {
		n.Errorf("%s: %d %s, %v", body, res.StatusCode, text, err)
	}
	return res.StatusCode
}

// descriptor is what Envoy asks of a user, as JSON.
func descriptor(user string) string {
	return fmt.Sprintf(`{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": %q}]}]}`, user)
}

// Three servers that are asked at the same moment, in all ways that there are, admit no unit more than an
// exact limit.
func TestExactFleet(t *testing.T) {
	redis := redistest.Start(t)
	var named, entries atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		n := beginExact(t, redis.Addr())
		all.Go(func() { named.Add(int64(admits(t, n.take, "k"))) })
		for range 4 {
			all.Go(func() {
				for n.post(`{"rule": "api", "key": "k"}`) == 200 {
					named.Add(1)
				}
			})
			all.Go(func() {
				for n.post(descriptor("k")) == 200 {
					entries.Add(1)
				}
			})
			all.Go(func() { entries.Add(int64(admits(t, n.ask, "k"))) })
		}
	}
	all.Wait()
	if named.Load() != 10 || entries.Load() != 10 {
		t.Errorf("%d and %d units of 10 admitted", named.Load(), entries.Load())
	}
}

// While Redis is away, and nobody has noticed, each protocol has its error; then the fallback decides.
func TestExactOutage(t *testing.T) {
	redis := redistest.Start(t)
	n := beginExact(t, redis.Addr())
	if !n.take("k") || !n.ask("k") || n.post(`{"rule": "api", "key": "k"}`) != 200 || n.post(descriptor("k")) != 200 {
		t.Fatal("refused")
	}
	redis.Kill()
	_, err := n.rls.ShouldRateLimit(context.Background(), &ratelimit.RateLimitRequest{
		Domain:      "d",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "k"}}}},
	})
	early := n.server.Limiter().State().Mode == hybrid.Degraded // then it was noticed before the call
	if code := status.Code(err); code != codes.Unavailable && !(early && err == nil) {
		t.Errorf("%v", err)
	}
	eventually(t, "degraded", func() bool { return n.server.Limiter().State().Mode == hybrid.Degraded })
	if !n.take("k") || !n.ask("k") || n.post(`{"rule": "api", "key": "k"}`) != 200 || n.post(descriptor("k")) != 200 {
		t.Error("the fallback refuses")
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	n.synced()
	eventually(t, "all is reported, and what Redis has lost is restored", func() bool {
		list, err := n.server.Limiter().Explain(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Rule.Name() == "api" && e.Redis != nil && e.Redis.Used == 4 {
				return true
			}
		}
		return false
	})
	left := 0
	for n.post(`{"rule": "api", "key": "k"}`) == 200 {
		left++
	}
	if left != 6 {
		t.Errorf("%d are left of 10, want 6", left)
	}
}
