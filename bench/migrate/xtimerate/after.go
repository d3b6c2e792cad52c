package xtimerate

import (
	"context"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

var perHost = limit.Must(limit.TokenBucket("upstream", limit.Tokens{Burst: 20, Refill: 10, Per: time.Second})) // built once

type clientAfter struct{ lim *local.Limiter }

func newAfter() (*clientAfter, error) {
	lim, err := local.New(local.Options{MaxKeys: 10_000}) // Close it at the end; hybrid shares
	return &clientAfter{lim}, err
}

func (c *clientAfter) do(ctx context.Context, r *http.Request) (*http.Response, error) {
	if err := c.lim.Wait(ctx, r.URL.Host, perHost); err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(r.WithContext(ctx))
}
