package hybrid_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Fault 93: the time that a connection takes to be made is not taken for an overload. The same answer
// on a connection that exists is.
func TestDialIsNoOverload(t *testing.T) {
	const slow = 100 * time.Millisecond
	for _, dials := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			net0, far := new(network), new(atomic.Bool)
			rdb := w.client(net0, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if far.Load() {
						time.Sleep(slow)
					}
					return net0.dial(ctx, network, addr)
				}
			})
			l := newLimiter(t, rdb, hybrid.Options{PollOnly: true})
			time.Sleep(10 * time.Millisecond)
			wantMode(t, l, hybrid.Synced)
			l.Allow("k", longWindow)
			if err := l.Flush(bg); err != nil {
				t.Fatal(err)
			}
			if dials { // somebody else has the connection
				other := rdb.Conn()
				defer other.Close()
				if err := other.Ping(bg).Err(); err != nil {
					t.Fatal(err)
				}
				far.Store(true)
			} else {
				net0.set(func(n *network) { n.lag = slow })
			}
			l.Allow("k", longWindow)
			began := time.Now()
			if err := l.Flush(bg); err != nil || time.Since(began) < slow {
				t.Fatalf("flushed within %v: %v", time.Since(began), err)
			}
			if err := l.Shutdown(bg); err != nil {
				t.Fatal(err)
			}
			if now, first := l.Budget(); (now == first) != dials {
				t.Errorf("with a new connection: %v; a pipeline may cost %v of %v", dials, now, first)
			}
		})
	}
}
