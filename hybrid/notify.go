package hybrid

import (
	"context"
	"log/slog"
)

// notifier tells people and programs of changes of state, from a goroutine of
// its own, so that neither a slow logger nor a slow callback can hold up the
// reconciler.
type notifier struct {
	log   *slog.Logger
	hook  func(State)
	stats *counters
	queue chan State
	done  chan struct{}
	last  State // owned by changed
}

// notifyBacklog bounds the changes that wait for a slow receiver; further
// ones are skipped, the latest last.
const notifyBacklog = 16

func newNotifier(log *slog.Logger, hook func(State), stats *counters) *notifier {
	return &notifier{log: log, hook: hook, stats: stats, queue: make(chan State, notifyBacklog), done: make(chan struct{}),
		last: State{Mode: Resyncing}}
}

// changed is called by the reconciler for every new state, and passes on what
// is worth telling: another mode, or that an operator is needed.
func (n *notifier) changed(s State) {
	if s.Mode == n.last.Mode && (s.Mode != Degraded || s.Reason == n.last.Reason || !needsOperator(s.Reason)) {
		n.last.Nodes = s.Nodes
		return
	}
	n.last = s
	for {
		select {
		case n.queue <- s:
			return
		default:
		}
		select {
		case <-n.queue: // drop the oldest
		default:
		}
	}
}

func needsOperator(reason string) bool {
	return reason == "noauth" || reason == "noperm" || reason == "wrongpass"
}

func (n *notifier) stop() { close(n.done) }

func (n *notifier) run() error {
	for {
		select {
		case s := <-n.queue:
			n.tell(s)
		case <-n.done:
			return nil
		}
	}
}

// tell calls out to the logger and to the hook.
func (n *notifier) tell(s State) {
	n.guarded(func() {
		level := slog.LevelInfo
		if s.Mode == Degraded {
			level = slog.LevelWarn
		}
		n.log.LogAttrs(context.Background(), level, "rate limiter "+s.Mode.String(),
			slog.String("reason", s.Reason), slog.Int("nodes", s.Nodes), slog.Int("down", s.Down), slog.Any("err", s.Err))
	})
	if n.hook != nil {
		n.guarded(func() { n.hook(s) })
	}
}

// guarded calls foreign code; a panic in it ends here.
func (n *notifier) guarded(f func()) {
	defer func() {
		if recover() != nil {
			n.stats.hookPanics.Add(1)
		}
	}()
	f()
}
