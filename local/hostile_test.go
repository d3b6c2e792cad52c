package local

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// No error shows more of a key than some bytes, nor anything that cannot be printed.
func TestErrorsOfHostileKeys(t *testing.T) {
	const most = 300 // bytes of an error
	key, rule := limittest.HostileKey(), limit.Must(limit.TokenBucket("api", limit.Tokens{Burst: 1, Refill: 1, Per: time.Hour}))
	l, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Take(key, rule, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	limittest.CheckError(t, "a wait that is too long", l.Wait(ctx, key, rule), most)
	limittest.CheckError(t, "a wait for ever", l.WaitN(ctx, key, rule, 2), most)
	limittest.CheckError(t, "a wait for less than nothing", l.WaitN(ctx, key, rule, -1), most)
	limittest.CheckError(t, "a wait without a rule", l.Wait(ctx, key, nil), most)
	limittest.CheckError(t, "to set less than nothing", l.Set(key, rule, -1), most)
}
