package remote

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// watch is what a client has sent by itself, and until when.
type watch struct {
	sent      []string
	deadlines []time.Time
}

// watched returns a limiter whose commands are written down, and fail if their names are in a list.
func watched(b *backend, fail map[string]error) (*Limiter, *watch) {
	w, rdb := new(watch), dial(b.t, b.addr)
	rdb.AddHook(redistest.Alone(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		at, _ := ctx.Deadline()
		w.sent, w.deadlines = append(w.sent, cmd.Name()), append(w.deadlines, at)
		if err := fail[cmd.Name()]; err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}))
	return limit.Must(New(rdb, Options{Shards: 4, CommandTimeout: 5 * time.Second})), w
}

// took returns what was sent since the last time.
func (w *watch) took() string {
	s := strings.Join(w.sent, " ")
	w.sent, w.deadlines = nil, nil
	return s
}

// Whoever makes room tells the nodes that listen, and names the key, its generation and Redis'
// time as the nodes do.
func TestRoomIsTold(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s, l := b.store(), b.limiter()
		keys := s.Keyspace()
		name := keys.NoticeChannel(channelOf(t, s))
		sub := listening(t, s, name)
		for what, call := range map[string]func(key string, rule *limit.Rule, r limit.Reservation) error{
			"reset": func(key string, rule *limit.Rule, _ limit.Reservation) error { return l.Reset(ctx, key, rule) },
			"set":   func(key string, rule *limit.Rule, _ limit.Reservation) error { return l.Set(ctx, key, rule, 9) },
			"refund": func(key string, rule *limit.Rule, _ limit.Reservation) error {
				_, err := l.Refund(ctx, key, rule, 1)
				return err
			},
			"cancel": func(_ string, _ *limit.Rule, r limit.Reservation) error { return r.Cancel(ctx) },
		} {
			for _, rule := range []*limit.Rule{funnel(t, 10, 10, time.Hour), sliding(t, 10, time.Hour, 10), fixed(t, 10, time.Hour), daily(t, 10)} {
				take(t, l, what, rule, 9)
				r, err := l.Reserve(ctx, what, rule)
				before := b.now()
				if err := errors.Join(err, call(what, rule, r)); err != nil {
					t.Fatalf("%s under %v: %v", what, rule, err)
				}
				got := room(t, sub, name)
				op := report.Report{Key: keys.CounterKey(rule, what), Rule: rule}
				if b.mini != nil { // whose clock is years behind ours: a node knows it by its heartbeats
					_, _, _ = s.Take(ctx, redisstore.Look, redisstore.Ask{Counter: op.Key, Rule: rule})
				}
				state := exec(t, s, &redisstore.Batch{Shard: keys.Shard(what), Node: "n1", Seq: 1, Ops: []report.Report{op}}).States[0]
				b.rdb.Del(ctx, keys.SeqKey(keys.Shard(what), "n1"))
				want := report.Notice{ID: redisstore.NoticeIDOf(op.Key), Shard: keys.Shard(what), Shape: arith.Of(rule).ShapeHash(), Limit: 10, Gen: state.Gen, Now: got.Now}
				if got != want || state.Gen == 0 || int64(got.Now/time.Microsecond) < before {
					t.Errorf("%s under %v at %d: %+v, want %+v", what, rule, before, got, want)
				}
			}
		}
	})
}

// room receives one notice of a caller.
func room(t *testing.T, sub *redisstore.Subscription, name string) report.Notice {
	t.Helper()
	channel, payload, err := sub.Receive(5 * time.Second)
	if err != nil || channel != name {
		t.Fatalf("%q, %v", channel, err)
	}
	node, list, ok := redisstore.ReadNotices(payload)
	if !ok || node != roomNode || len(list) != 1 {
		t.Fatalf("%q, %+v, %v", node, list, ok)
	}
	return list[0]
}

// Without a channel, or with a broken id, calls cost one round trip, but for one question in
// [channelFor]. What makes no room, and what no node counts, costs one in any case.
func TestRoomWithoutListeners(t *testing.T) {
	rule := fixed(t, 10, time.Hour)
	for name, id := range map[string]string{"none": "", "broken": "a-b", "long": strings.Repeat("x", 41), "good": "id1"} {
		onBoth(t, func(t *testing.T, b *backend) {
			l, w := watched(b, nil)
			if id != "" {
				b.set(l.store.Keyspace().ChannelKey(), id)
			}
			quiet := []func() error{
				func() error { return l.Set(ctx, "k", rule, 10) },
				func() error { _, err := l.Refund(ctx, "unused", rule, 1); return err },
				func() error { return l.Reset(ctx, "k", slidingLog(t, 10, time.Hour)) },
			}
			for _, call := range slices.Concat(quiet, quiet) {
				if err := call(); err != nil {
					t.Fatal(err)
				}
			}
			for _, cmd := range w.sent {
				if cmd == "get" || cmd == "publish" {
					t.Errorf("%s: %v", name, w.sent)
				}
			}
			w.took()
			if err := errors.Join(l.Reset(ctx, "k", rule), l.Reset(ctx, "k", rule)); err != nil {
				t.Fatal(err)
			}
			want := "evalsha get evalsha"
			if name == "good" {
				want = "evalsha get publish evalsha publish"
			}
			if got := w.took(); got != want {
				t.Errorf("%s: sent %s, want %s", name, got, want)
			}
			l.channelUntil.Store(0) // as after channelFor
			b.set(l.store.Keyspace().ChannelKey(), "id2")
			if err := l.Reset(ctx, "k", rule); err != nil || w.took() != "evalsha get publish" {
				t.Errorf("%s: a new channel is not found, %v", name, err)
			}
		})
	}
}

// That the nodes are not told is no error of the call, costs no further round trips for a while,
// and takes no longer than the call itself may.
func TestRoomCannotBeTold(t *testing.T) {
	rule := fixed(t, 10, time.Hour)
	for cmd, want := range map[string]string{"get": "evalsha get evalsha", "publish": "evalsha get publish evalsha"} {
		onBoth(t, func(t *testing.T, b *backend) {
			l, w := watched(b, map[string]error{cmd: errors.New("no " + cmd)})
			b.set(l.store.Keyspace().ChannelKey(), "id1")
			take(t, l, "k", rule, 10)
			w.took()
			back, err := l.Refund(ctx, "k", rule, 3)
			if back != 3 || err != nil {
				t.Errorf("without %s: %d handed back, %v", cmd, back, err)
			}
			if d := w.deadlines; d[len(d)-1].After(d[0]) {
				t.Errorf("without %s: deadlines %v", cmd, w.deadlines)
			}
			if err := l.Reset(ctx, "k", rule); err != nil {
				t.Errorf("without %s: %v", cmd, err)
			}
			// The server has not seen the scripts.
			if got := strings.ReplaceAll(w.took()+" ", "evalsha eval ", "evalsha "); got != want+" " {
				t.Errorf("without %s: sent %s, want %s", cmd, got, want)
			}
		})
	}
}

// channelOf beats, and returns the id of the channel.
func channelOf(t *testing.T, s *redisstore.Store) string {
	t.Helper()
	beat, err := s.Beat(ctx, "n1", time.Second, []int{0}, redisstore.BeatOptions{Offer: "id1"})
	if err != nil || beat.Nodes != 1 {
		t.Fatalf("%+v, %v", beat, err)
	}
	return beat.Channel
}

// listening returns a subscription that Redis has confirmed.
func listening(t *testing.T, s *redisstore.Store, channel string) *redisstore.Subscription {
	t.Helper()
	sub := s.Subscribe(channel)
	t.Cleanup(sub.Close)
	if channel, payload, err := sub.Receive(5 * time.Second); channel != "" || payload != "" || err != nil {
		t.Fatalf("%q, %q, %v instead of a confirmation", channel, payload, err)
	}
	return sub
}
