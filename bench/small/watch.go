package main

import (
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	watchPace    = 500 * time.Microsecond // between two questions to a node: differences below are not seen
	longestWait  = 2 * time.Second        // a node that does not refuse by then counts as one that never hears
	shortestWait = 100 * time.Millisecond // a key that has room again before is not watched
)

// watcher measures how long it takes from the unit that uses up a key until all other nodes
// refuse the key.
type watcher struct {
	rule  *limit.Rule
	nodes []*hybrid.Limiter
	all   *hybrid.Limiter // counts what all nodes admit, as one process would

	asking sync.WaitGroup
	done   chan struct{}

	mu    sync.Mutex // protects what follows
	open  []*watch
	took  []time.Duration // of keys that all have refused in the end
	never int             // keys that some node would still have admitted at the end of the wait
}

// watch is a key that is used up, and the nodes that have not been seen to refuse it.
type watch struct {
	key       string
	from, end time.Duration
	nodes     []*hybrid.Limiter
}

func newWatcher(rule *limit.Rule, nodes []*hybrid.Limiter) (*watcher, error) {
	all, err := hybrid.New(nil, hybrid.Options{})
	return &watcher{rule: rule, nodes: nodes, all: all}, err
}

// admitted says that a node has admitted a unit at a time. If no further one fits, the key is
// watched from then on.
func (w *watcher) admitted(key string, node int, at time.Duration) {
	if res := w.all.Take(key, w.rule, 1); !res.Allowed || res.Remaining > 0 {
		return
	}
	wait := min(w.all.Peek(key, w.rule).RetryAfter, longestWait)
	if wait < shortestWait {
		return
	}
	others := slices.Delete(slices.Clone(w.nodes), node, node+1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, &watch{key, at, at + wait, others})
}

// start asks the nodes again and again until stop. What is open then does not count.
func (w *watcher) start() {
	w.done = make(chan struct{})
	w.asking.Go(func() {
		tick := time.NewTicker(watchPace)
		defer tick.Stop()
		for {
			select {
			case <-w.done:
				return
			case <-tick.C:
				w.look()
			}
		}
	})
}

func (w *watcher) stop() {
	close(w.done)
	w.asking.Wait()
}

func (w *watcher) close() { _ = w.all.Close() } // it has nothing to report

func (w *watcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = slices.DeleteFunc(w.open, func(k *watch) bool {
		k.nodes = slices.DeleteFunc(k.nodes, func(l *hybrid.Limiter) bool { return !l.Peek(k.key, w.rule).Allowed })
		switch now := rig.Now(); {
		case len(k.nodes) == 0:
			w.took = append(w.took, now-k.from)
		case now > k.end:
			w.never++
			w.took = append(w.took, k.end-k.from)
		default:
			return false
		}
		return true
	})
}
