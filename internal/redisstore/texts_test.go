package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lateHook lasts each pipeline until its deadline, as a cluster's client does
// while one of the servers is silent, and remembers what was sent.
type lateHook struct {
	redis.Hook
	sent []string
}

func (*lateHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*lateHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *lateHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Err() != nil {
			for _, c := range cmds {
				c.SetErr(ctx.Err())
			}
			return ctx.Err()
		}
		for _, c := range cmds {
			h.sent = append(h.sent, c.Args()[0].(string))
		}
		err := next(ctx, cmds)
		<-ctx.Done()
		return err
	}
}

// A server that lacks the scripts learns them although every pipeline lasts
// until its deadline, so that there is no time for a second round: what it could
// not be told is said in full the next time, and only then.
//
// Fault 21: a server of a cluster has no script in its cache, while another one
// is silent.
func TestScriptsAreLearntBesideASilentServer(t *testing.T) {
	b := onReal(t)
	hook := &lateHook{}
	b.rdb.AddHook(hook)
	s, err := NewStore(b.rdb, Options{Shards: 64, CommandTimeout: DefaultCommandTimeout})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Beat(ctx, "n1", time.Hour, []int{0, 1}, BeatOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first beat: %v, want no answer in time", err)
	}
	for range 2 {
		if beat, err := s.Beat(ctx, "n1", time.Hour, []int{0, 1, 2}, BeatOptions{}); err != nil || beat.Nodes != 1 {
			t.Errorf("a later beat: %+v, %v", beat, err)
		}
	}
	want := []string{
		"evalsha", "evalsha", // the beat asks shard 0 itself
		"eval", "eval", "eval", // as one script is for shard 1 and for shard 2
		"evalsha", "evalsha", "evalsha",
	}
	if !slices.Equal(hook.sent, want) {
		t.Errorf("sent %q, want %q", hook.sent, want)
	}
}
