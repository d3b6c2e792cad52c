package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrSilence reports a subscription on which nothing has arrived within the timeout of
// Receive.
var ErrSilence = errors.New("remote: nothing was heard")

// errResubscribed reports that the client has replaced the connection by itself.
var errResubscribed = errors.New("remote: the subscription was interrupted")

// Subscription receives what is published on channels. Build one with [Store.Subscribe]. One
// goroutine may receive while another one closes it.
//
// It ends with the first error, because what is published until the next subscription is
// lost: close it then, and subscribe again.
type Subscription struct {
	store    *Store
	channels []string
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	ps        *redis.PubSub // nil: err says why
	begun     bool          // this, confirmed and err are used by the receiver only
	confirmed int           // number of channels
	err       error
}

// Subscribe returns a subscription to channels, at least one, which all have one hash tag.
// The first call of Receive connects to Redis.
func (s *Store) Subscribe(channels ...string) *Subscription { return s.SubscribeVia(0, channels...) }

// SubscribeVia is Subscribe at the master of a shard if the client is one of a Cluster. Then it may use
// the network, as [Store.Servers] does.
func (s *Store) SubscribeVia(shard int, channels ...string) *Subscription {
	sub := &Subscription{store: s, channels: channels}
	sub.ctx, sub.cancel = context.WithCancel(context.Background())
	sub.err = guarded(func() (err error) {
		sub.ps, err = s.pubSub(sub.ctx, shard, channels[0])
		return err
	})
	if sub.err == nil {
		// In a goroutine: ps.Close waits while go-redis connects, because a Dialer may not notice
		// that its context has ended.
		context.AfterFunc(sub.ctx, func() { _ = guarded(sub.ps.Close) })
	}
	return sub
}

// pubSub returns an empty subscription at the server that holds a key with the channel's
// hash tag, or on a Cluster at the master of a shard. For shard 0 the client chooses it when it
// subscribes.
func (s *Store) pubSub(ctx context.Context, shard int, channel string) (*redis.PubSub, error) {
	if s.cluster && shard != 0 {
		in, cancel := s.Deadline(ctx)
		defer cancel()
		one, err := s.rdb.(masters).MasterForKey(in, s.keys.SeqKey(shard, "-"))
		if err != nil {
			return nil, err
		}
		return one.Subscribe(ctx), nil
	}
	ring, ok := s.rdb.(ringClient)
	if !ok {
		return s.rdb.Subscribe(ctx), nil
	}
	one, err := ring.GetShardClientForKey(channel) // the Ring's own Subscribe panics without a channel
	if err != nil {
		return nil, err
	}
	return one.Subscribe(ctx), nil
}

// cancelled is a context that has ended. With it go-redis reads as usual, but makes no new connection.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Receive returns the next message. An empty channel without an error says that Redis has
// confirmed the subscription to all channels, which it does once. The error is [ErrSilence]
// if nothing has arrived within timeout (0: no timeout). A missing permission is the error
// of Redis.
func (s *Subscription) Receive(timeout time.Duration) (channel, payload string, err error) {
	if s.err != nil {
		return "", "", Wrap(s.err)
	}
	if err := guarded(func() (err error) {
		channel, payload, err = s.receive(timeout)
		return err
	}); err != nil {
		s.err = err
		return "", "", Wrap(err)
	}
	return channel, payload, nil
}

func (s *Subscription) receive(timeout time.Duration) (channel, payload string, err error) {
	if !s.begun {
		s.begun = true
		ctx, cancel := s.store.Deadline(s.ctx)
		defer cancel()
		if err := s.ps.Subscribe(ctx, s.channels...); err != nil {
			return "", "", err
		}
	}
	for {
		// After an error go-redis connects and subscribes again by itself, at once and
		// before it returns the error. That is useless here and may take long.
		got, err := s.ps.ReceiveTimeout(cancelled, timeout)
		switch got := got.(type) {
		case nil:
			if s.ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) {
				// Part of a message may have been read: this ends the subscription.
				err = fmt.Errorf("%w for %v", ErrSilence, timeout)
			}
			return "", "", err
		case *redis.Message:
			return got.Channel, got.Payload, nil
		case *redis.Subscription:
			if s.confirmed == len(s.channels) {
				return "", "", errResubscribed
			}
			if s.confirmed++; s.confirmed == len(s.channels) {
				return "", "", nil
			}
		}
	}
}

// Close ends the subscription, and a Receive that is waiting. It does not wait for the network.
func (s *Subscription) Close() { s.cancel() }
