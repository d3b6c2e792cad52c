// Package xtimerate is a client before and after it has moved from golang.org/x/time/rate.
package xtimerate

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/time/rate"
)

// clientBefore calls each host at most 10 times a second, 20 at once.
type clientBefore struct {
	mu    sync.Mutex
	hosts map[string]*rate.Limiter // grows with each host
}

func newBefore() *clientBefore {
	return &clientBefore{hosts: map[string]*rate.Limiter{}}
}

func (c *clientBefore) of(host string) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.hosts[host]
	if l == nil {
		l = rate.NewLimiter(10, 20)
		c.hosts[host] = l
	}
	return l
}

func (c *clientBefore) do(ctx context.Context, r *http.Request) (*http.Response, error) {
	if err := c.of(r.URL.Host).Wait(ctx); err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(r.WithContext(ctx))
}
