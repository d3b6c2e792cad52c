package hybrid

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// notifier passes changes of the state, and events, to the logger and to the hooks. It does so
// in a goroutine of its own, so that a slow logger or hook delays neither exchanges with Redis
// nor a check.
type notifier struct {
	log *slog.Logger // nil: the default one of slog
	// fallback is what decides while Redis is away. Log lines name it.
	fallback Fallback
	onState  func(State)
	onEvent  func(Event)
	stats    func() inside.Figures
	panics   func() // counts a panic of a logger or a hook
	states   chan State
	events   chan Event
	done     chan struct{}         // closed: run must end
	ended    chan struct{}         // closed: run has ended
	last     State                 // the latest that was passed on; owned by changed
	now      atomic.Pointer[State] // the latest of all

	// Owned by run. Times are on the timer clock.
	lines     [kinds]throttle
	reminders [kinds]reminder
	outage    outage
	logged    Mode          // of the latest line about the state
	late      *State        // the state that is to be logged when notBefore has passed and the throttle allows; nil: none
	notBefore time.Duration // when an outage is no longer brief
	sumUpAt   time.Duration // when brief outages are summed up; 0: there are none
}

// The longest queues for a slow receiver. In a full queue the oldest entry is replaced.
const (
	stateBacklog = 16
	eventBacklog = 64
)

// newNotifier returns a notifier that does not run yet.
func newNotifier(o Options, stats func() inside.Figures, panics func()) *notifier {
	n := &notifier{log: o.Logger, fallback: o.Fallback, onState: o.OnStateChange, onEvent: o.OnEvent, stats: stats, panics: panics,
		states: make(chan State, stateBacklog), events: make(chan Event, eventBacklog), done: make(chan struct{}), ended: make(chan struct{}),
		last: State{Mode: Resyncing}, logged: Resyncing}
	n.now.Store(&State{Mode: Resyncing})
	return n
}

// changed is called for every new state. It passes the state on if the mode has changed, or if
// the reason is another failure that only an operator can end.
func (n *notifier) changed(s State) {
	n.now.Store(&s)
	if s.Mode == n.last.Mode && (s.Mode != Degraded || s.Reason == n.last.Reason || !needsOperator(s.Reason)) {
		return
	}
	n.last = s
	push(n.states, s)
}

// happened passes an event on. It never blocks.
func (n *notifier) happened(e Event) { push(n.events, e) }

// push puts v into a queue, and drops the oldest entries if there is no room. It never
// blocks.
func push[T any](queue chan T, v T) {
	for {
		select {
		case queue <- v:
			return
		default:
		}
		select {
		case <-queue:
		default:
		}
	}
}

// needsOperator reports whether only an operator can end a failure.
func needsOperator(reason string) bool { return redisstore.Refusal(reason) != "" }

// hint returns the attribute that says what an operator can do; none if a failure ends without one.
func hint(reason string) []slog.Attr {
	if !needsOperator(reason) {
		return nil
	}
	return []slog.Attr{slog.String("hint", redisstore.Refusal(reason))}
}

// stop ends run.
func (n *notifier) stop() { close(n.done) }

// run passes on states and events until stop. It returns no error.
func (n *notifier) run() error {
	defer close(n.ended)
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case s := <-n.states:
			n.deliverState(s)
		case e := <-n.events:
			n.deliverEvent(e)
		case <-timer.C:
			n.logDue()
		case <-n.done:
			n.drain()
			return nil
		}
		timer.Reset(n.pause())
	}
}

// pause returns how long until a line is due.
func (n *notifier) pause() time.Duration {
	now := pace()
	wait := time.Duration(math.MaxInt64)
	if n.late != nil {
		wait = max(n.notBefore-now, n.lines[kindState].wait(now))
	}
	if n.sumUpAt != 0 {
		wait = min(wait, n.sumUpAt-now)
	}
	for i := range n.reminders {
		if at := n.reminders[i].at; at != 0 {
			wait = min(wait, at-now)
		}
	}
	return max(wait, 0)
}

// logDue writes the lines that are due.
func (n *notifier) logDue() {
	if n.late != nil {
		n.logState(*n.late)
	}
	if n.sumUpAt != 0 && pace() >= n.sumUpAt {
		n.sumUp()
	}
	for i := range n.reminders {
		if at := n.reminders[i].at; at != 0 && pace() >= at {
			n.remind(EventKind(i))
		}
	}
}

// drain passes on the events from before the limiter was closed, and sums up the latest brief outages.
func (n *notifier) drain() {
	for {
		select {
		case e := <-n.events:
			n.deliverEvent(e)
		default:
			if n.sumUpAt != 0 {
				n.sumUp()
			}
			return
		}
	}
}

// deliverState gives a state to the logger and to the hook.
func (n *notifier) deliverState(s State) {
	n.outage.note(s, n.stats)
	n.logState(s)
	if n.onState != nil {
		n.guarded(func() { n.onState(s) })
	}
}

// logState logs a state, or puts it off: if there were too many lines, and until an outage is no longer
// brief. Nothing is logged if the state is again that of the latest line.
func (n *notifier) logState(s State) {
	now := pace()
	switch {
	case s.Mode == Synced && n.logged == Synced: // the outage between was brief
		if n.late = nil; n.outage.count > 0 && n.sumUpAt == 0 {
			n.sumUpAt = now + sumUpEvery
		}
		return
	case s.Mode == Synced, s.Mode == Degraded && needsOperator(s.Reason):
		n.notBefore = 0
	case s.Mode == Degraded && n.late == nil:
		n.notBefore = now + brief
	}
	n.late = &s
	if now < n.notBefore {
		return
	}
	skipped, ok := n.lines[kindState].admit(now)
	if !ok {
		return
	}
	n.late, n.logged, n.reminders[kindState].at = nil, s.Mode, 0
	if s.Mode == Degraded {
		n.logOutage(s, nil, skipped)
		return
	}
	var ended []slog.Attr
	if s.Mode == Synced {
		ended, n.sumUpAt = n.outage.report(), 0
	}
	if n.log != nil || ended != nil {
		n.write(slog.LevelInfo, "rate limiter "+s.Mode.String(), append(about(s), ended...), skipped)
	}
}

// logOutage logs that Redis is away, why, and how checks are decided meanwhile. It will be repeated.
func (n *notifier) logOutage(s State, more []slog.Attr, skipped int) {
	n.reminders[kindState].at = pace() + remindEvery
	level := slog.LevelWarn
	if needsOperator(s.Reason) {
		level = slog.LevelError
	}
	attrs := append(about(s), slog.String("fallback", n.fallback.String()), slog.String("effect", n.fallback.advice(s.Nodes)))
	attrs = append(append(attrs, hint(s.Reason)...), more...)
	n.write(level, "rate limiter "+s.Mode.String(), attrs, skipped)
}

// about returns the attributes of each line about a state.
func about(s State) []slog.Attr {
	return append(why(s.Reason, s.Err), slog.Int("nodes", s.Nodes), slog.Int("shards_down", s.Down))
}

// deliverEvent gives an event to the logger and to the hook.
func (n *notifier) deliverEvent(e Event) {
	// The other kinds are rare by themselves.
	skipped, ok := 0, true
	if e.Kind == EventDataLost || e.Kind == EventQuarantined || e.Kind == EventRenamed || e.Kind == EventNoticesDown {
		skipped, ok = n.lines[e.Kind].admit(pace())
	}
	if ok {
		n.logEvent(e, skipped)
	}
	if n.onEvent != nil {
		n.guarded(func() { n.onEvent(e) })
	}
}

// logEvent logs an event. That of a kind that lasts will be repeated.
func (n *notifier) logEvent(e Event, skipped int) {
	if e.Kind == EventNoticesDown || e.Kind == EventMismatch {
		n.reminders[e.Kind] = reminder{pace() + remindEvery, e}
	}
	err := e.Err
	if e.Kind == EventQuarantined { // the error repeats the key
		err = nil
	}
	attrs := why(e.Reason, err)
	if e.Key != "" {
		attrs = append(attrs, slog.String("key", escape.Quote(e.Key)))
	}
	level := slog.LevelWarn
	if _, reason := redisstore.Classify(e.Err); e.Kind == EventNoticesDown && needsOperator(reason) {
		level = slog.LevelError
		attrs = append(attrs, hint(reason)...)
	}
	n.write(level, "rate limiter: "+e.Kind.String(), attrs, skipped)
}

// why returns the attributes that say why something has happened, without empty ones.
func why(reason string, err error) (attrs []slog.Attr) {
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if err != nil {
		attrs = append(attrs, slog.String("err", redisstore.Text(err)))
	}
	return attrs
}

// closed logs that the limiter was closed and n units were not reported: the error of a deferred
// Close is dropped. A logger gets the rest of ctx, and at least leastLogTime.
func (n *notifier) closed(ctx context.Context, units int64, err error) {
	written := make(chan struct{})
	go func() {
		n.write(slog.LevelError, "rate limiter closed before all was reported", append(why("", err), slog.Int64("units", units)), 0)
		close(written)
	}()
	least := time.After(leastLogTime)
	select {
	case <-written:
		return
	case <-ctx.Done():
	}
	select {
	case <-written:
	case <-least:
	}
}

// leastLogTime is for how long Close waits for the logger when its context has ended.
const leastLogTime = 100 * time.Millisecond

// write logs a line, and how many lines of its kind were skipped before it.
func (n *notifier) write(level slog.Level, text string, attrs []slog.Attr, skipped int) {
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	n.guarded(func() {
		log := n.log
		if log == nil {
			log = slog.Default() // the service may have set it after New
		}
		log.LogAttrs(context.Background(), level, text, attrs...)
	})
}

// guarded calls foreign code and recovers a panic in it.
func (n *notifier) guarded(f func()) {
	defer func() {
		if recover() != nil {
			n.panics()
		}
	}()
	f()
}
