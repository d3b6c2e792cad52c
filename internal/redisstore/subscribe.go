package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrSilence reports a subscription on which nothing has arrived for as long as the caller
// wanted to wait.
var ErrSilence = errors.New("remote: nothing was heard")

// errResubscribed reports that the client has replaced the connection by itself.
var errResubscribed = errors.New("remote: the subscription was interrupted")

// Subscription hears what is published on channels. Build one with [Store.Subscribe]. One
// goroutine may receive while another one closes it.
//
// It ends with the first error, because what is published until somebody subscribes anew is
// lost: close it then, and subscribe again.
type Subscription struct {
	store    *Store
	channels []string
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	ps        *redis.PubSub // nil: err says why
	begun     bool          // only the receiver uses this and what follows
	confirmed int           // channels
	err       error

	mu         sync.Mutex
	connecting bool // the receiver closes ps, if that is due then
	closed     bool
}

// Subscribe returns a subscription to channels, at least one, which all have one hash tag.
// It does not talk to Redis yet, the first call of Receive does.
func (s *Store) Subscribe(channels ...string) *Subscription {
	sub := &Subscription{store: s, channels: channels}
	sub.ctx, sub.cancel = context.WithCancel(context.Background())
	sub.err = guarded(func() (err error) {
		sub.ps, err = pubSub(sub.ctx, s.rdb, channels[0])
		return err
	})
	return sub
}

// pubSub returns an empty subscription at the server that holds a key with the channel's
// hash tag. That of a client of a Cluster chooses the server when it subscribes.
func pubSub(ctx context.Context, rdb redis.UniversalClient, channel string) (*redis.PubSub, error) {
	ring, ok := rdb.(interface {
		GetShardClientForKey(string) (*redis.Client, error)
	})
	if !ok {
		return rdb.Subscribe(ctx), nil
	}
	one, err := ring.GetShardClientForKey(channel) // its Subscribe panics without a channel
	if err != nil {
		return nil, err
	}
	return one.Subscribe(ctx), nil
}

// cancelled has ended: with it go-redis reads as usual, but makes no new connection.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Receive returns the next message. An empty channel without an error says that Redis has
// confirmed the subscription to all channels, which it does once. [ErrSilence] says that
// nothing has arrived for so long (0: however long that takes), a missing permission is
// the error of Redis.
func (s *Subscription) Receive(timeout time.Duration) (channel, payload string, err error) {
	if s.err != nil {
		return "", "", wrap(s.err)
	}
	if err := guarded(func() (err error) {
		channel, payload, err = s.receive(timeout)
		return err
	}); err != nil {
		s.err = err
		return "", "", wrap(err)
	}
	return channel, payload, nil
}

func (s *Subscription) receive(timeout time.Duration) (channel, payload string, err error) {
	if err := s.begin(); err != nil {
		return "", "", err
	}
	for {
		// After an error go-redis connects and subscribes again by itself, at once and
		// before it returns the error. That is of no use here, and may take long.
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

// begin connects and subscribes.
func (s *Subscription) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	s.connect(true)
	ctx, cancel := s.store.Deadline(s.ctx)
	defer cancel()
	err := s.ps.Subscribe(ctx, s.channels...)
	if s.connect(false) {
		_ = s.ps.Close()
		return redis.ErrClosed
	}
	return err
}

// connect notes whether the receiver is about to connect, and reports whether the
// subscription has been closed.
func (s *Subscription) connect(on bool) (closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connecting = on
	return s.closed
}

// Close ends the subscription, and a Receive under way. It does not wait for the network:
// a Receive that is about to connect closes the connection by itself.
func (s *Subscription) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	if !s.closed && !s.connecting && s.ps != nil {
		// It waits while go-redis connects after an error, see receive: a Dialer may not notice
		// that its context has ended.
		go func() { _ = s.ps.Close() }()
	}
	s.closed = true
}
