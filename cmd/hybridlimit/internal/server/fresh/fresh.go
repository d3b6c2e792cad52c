// Package fresh fetches what is known elsewhere of keys that are only looked at.
//
// A limiter asks Redis for the keys that it counts. A key that this server has only looked at
// would seem unused for ever, however much other servers have counted.
package fresh

import (
	"context"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter is what a [Fetcher] needs; *hybrid.Limiter has it.
type Limiter interface {
	Preload(ctx context.Context, keys []string, rule *limit.Rule) error
}

const (
	// maxWaiting is how many keys wait to be fetched at most. Further ones are dropped: who
	// looks again asks again.
	maxWaiting = 1000
	// pause is between two rounds, so that many looks become one exchange with Redis.
	pause = 100 * time.Millisecond
	// timeout bounds the exchange for the keys of one rule.
	timeout = time.Second
)

// key is one under a rule.
type key struct {
	name string
	rule *limit.Rule
}

// Fetcher fetches keys in the background. Make it with [New]. It is safe for concurrent use.
type Fetcher struct {
	lim    Limiter
	want   chan key
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// New returns a fetcher, which runs until [Fetcher.Close].
func New(lim Limiter) *Fetcher {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fetcher{lim: lim, want: make(chan key, maxWaiting), cancel: cancel}
	f.done.Go(func() { f.run(ctx) })
	return f
}

// Look has a key fetched, unless it is known already and not old. It never waits.
func (f *Fetcher) Look(name string, rule *limit.Rule) {
	select {
	case f.want <- key{name, rule}:
	default:
	}
}

// Close ends the fetcher. Look may still be called, and does nothing.
func (f *Fetcher) Close() {
	f.cancel()
	f.done.Wait()
}

func (f *Fetcher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-f.want:
			f.fetch(ctx, first)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// fetch fetches a key, and all others that wait.
func (f *Fetcher) fetch(ctx context.Context, first key) {
	seen := map[key]bool{}
	names := map[*limit.Rule][]string{}
	for k, more := first, true; more; {
		if !seen[k] {
			seen[k] = true
			names[k.rule] = append(names[k.rule], k.name)
		}
		select {
		case k = <-f.want:
			more = len(seen) < maxWaiting
		default:
			more = false
		}
	}
	for rule, list := range names {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		// An error is that Redis is away, which the limiter's state says. Then nobody knows more.
		_ = f.lim.Preload(ctx, list, rule)
		cancel()
	}
}
