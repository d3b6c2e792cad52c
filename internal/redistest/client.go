package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ClientOptions returns options of a client under which deadlines hold.
func ClientOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr:                  addr,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
		DialerRetries:         1, // or a refused dial takes longer than a deadline
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Dial returns a client of a server for the length of a test.
func Dial(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	rdb := redis.NewClient(ClientOptions(addr))
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// Silence keeps go-redis from reporting on stderr what servers of tests do wrong by design.
func Silence() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
