package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// connectTimeout is how long it may take to make a connection for later calls.
const connectTimeout = 2 * time.Second

// connect makes a connection for later calls if one of these calls had no answer in time. It does
// not wait for that. It takes a server that is far away several round trips to make one, and the
// client throws away what is not ready when the call ends: no call would ever have an answer.
func (s *server) connect(calls ...*call) {
	key := ""
	for _, c := range calls {
		if _, reason := Classify(c.err); reason == "timeout" && len(c.keys) > 0 {
			key = c.keys[0]
		}
	}
	if key == "" || s.timeout >= connectTimeout || !s.dialing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.dialing.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		_ = guarded(func() error { return s.rdb.Process(ctx, once{redis.NewCmd(ctx, "get", key)}) }) // its answer is of no interest
	}()
}
