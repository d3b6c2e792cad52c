package remote

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// No error shows more of a key than some bytes, nor anything that cannot be printed: neither of a key
// that is kept as a hash, nor of one that is kept as it is.
func TestErrorsOfHostileKeys(t *testing.T) {
	const most = 300 // bytes of an error
	b := onMini(t)
	l, server := b.limiter(), b.mini
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rule := limit.Must(limit.TokenBucket("api", 1, time.Hour, 1))
	for what, key := range map[string]string{"long": limittest.HostileKey(), "short": limittest.HostileKey()[:200]} {
		server.FlushAll()
		if _, err := l.Take(ctx, key, rule, 1); err != nil {
			t.Fatal(err)
		}
		limittest.CheckError(t, what+", a wait that is too long", l.Wait(ctx, key, rule), most)
		limittest.CheckError(t, what+", a wait for ever", l.WaitN(ctx, key, rule, 2), most)
		for _, name := range server.Keys() {
			if err := server.Set(name, key); err != nil {
				t.Fatal(err)
			}
		}
		_, err := l.Take(ctx, key, rule, 1)
		limittest.CheckError(t, what+", a broken key", err, most)
		_, err = l.TakeAll(ctx, limit.Check{Key: key, Rule: rule})
		limittest.CheckError(t, what+", a broken key of several", err, most)
		limittest.CheckError(t, what+", to set a broken key", l.Set(ctx, key, rule, 1), most)
	}
}
