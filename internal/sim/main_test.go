package sim

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // go-redis reports every failed dial on stderr
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
