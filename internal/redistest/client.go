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

// Alone is a hook of a client for the commands that are sent by themselves.
type Alone func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// Answers has every command that is sent by itself answered in the same way, by no server.
func Answers(answer any) redis.Hook {
	return Alone(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		cmd.(interface{ SetVal(any) }).SetVal(answer)
		return nil
	})
}

// DialHook changes nothing.
func (Alone) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook calls h.
func (h Alone) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// ProcessPipelineHook changes nothing.
func (Alone) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
