package bench

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	// go-redis reports on stderr, where it would cut the lines of results apart.
	redis.SetLogger(silence{})
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
