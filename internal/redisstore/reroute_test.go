package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// mapless is a cluster's client whose calls fail as it is told, and that counts
// how often it is asked to look at the cluster anew.
type mapless struct {
	redis.UniversalClient
	err     error
	reloads int
}

func (m *mapless) ReloadState(context.Context) { m.reloads++ }

func (m *mapless) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(m.err)
	return m.err
}

// A call that fails because a server is away makes a cluster's client look for
// the one that has taken over; an answer, even a bad one, does not.
func TestReroute(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("connection refused"), 1},
		{nil, 0},
	} {
		m := &mapless{err: c.err}
		s := &Store{rdb: m, timeout: time.Second}
		s.do(t.Context(), &call{script: scriptSeq, keys: []string{"k"}, args: []any{1}})
		if m.reloads != c.want {
			t.Errorf("%v: looked anew %d times, want %d", c.err, m.reloads, c.want)
		}
	}
}
