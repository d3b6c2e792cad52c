package hybrid

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
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
	stats    func() Stats
	panics   func() // counts a panic of a logger or a hook
	states   chan State
	events   chan Event
	done     chan struct{}
	last     State // the latest that was passed on; owned by changed

	// Owned by run.
	lines  [kinds]throttle
	outage outage
	late   *State // the state that is to be logged as soon as the throttle allows; nil: none
}

// The longest queues for a slow receiver. In a full queue the oldest entry is replaced.
const (
	stateBacklog = 16
	eventBacklog = 64
)

// Log lines of one kind: logBurst at once, then one every logEvery.
const (
	logBurst = 6
	logEvery = 10 * time.Second
)

// newNotifier returns a notifier that does not run yet.
func newNotifier(o Options, stats func() Stats, panics func()) *notifier {
	return &notifier{log: o.Logger, fallback: o.Fallback, onState: o.OnStateChange, onEvent: o.OnEvent, stats: stats, panics: panics,
		states: make(chan State, stateBacklog), events: make(chan Event, eventBacklog), done: make(chan struct{}),
		last: State{Mode: Resyncing}}
}

// changed is called for every new state. It passes the state on if the mode has changed, or if
// the reason is another failure that only an operator can end.
func (n *notifier) changed(s State) {
	if s.Mode == n.last.Mode && (s.Mode != Degraded || s.Reason == n.last.Reason || !needsOperator(s.Reason)) {
		n.last.Nodes = s.Nodes
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

// run passes on states and events until stop.
func (n *notifier) run() error {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case s := <-n.states:
			n.deliverState(s)
		case e := <-n.events:
			n.deliverEvent(e)
		case <-timer.C:
			n.logState(*n.late)
		case <-n.done:
			n.drain()
			return nil
		}
		if timer.Stop(); n.late != nil {
			timer.Reset(n.lines[kindState].wait(pace()))
		}
	}
}

// drain passes on the events from before the limiter was closed.
func (n *notifier) drain() {
	for {
		select {
		case e := <-n.events:
			n.deliverEvent(e)
		default:
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

// logState logs a state, or puts it off if there were too many lines.
func (n *notifier) logState(s State) {
	skipped, ok := n.lines[kindState].admit(pace())
	if !ok {
		n.late = &s
		return
	}
	n.late = nil
	level := slog.LevelInfo
	switch {
	case s.Mode == Degraded && needsOperator(s.Reason):
		level = slog.LevelError
	case s.Mode == Degraded:
		level = slog.LevelWarn
	}
	attrs := append(why(s.Reason, s.Err), slog.Int("nodes", s.Nodes), slog.Int("shards_down", s.Down))
	if s.Mode == Degraded {
		attrs = append(append(attrs, slog.String("fallback", n.fallback.String())), hint(s.Reason)...)
	}
	var ended []slog.Attr
	if s.Mode == Synced {
		ended = n.outage.report()
	}
	if n.log == nil && level < slog.LevelWarn && ended == nil {
		return
	}
	n.write(level, "rate limiter "+s.Mode.String(), append(attrs, ended...), skipped)
}

// deliverEvent gives an event to the logger and to the hook.
func (n *notifier) deliverEvent(e Event) {
	// The other kinds are rare by themselves.
	skipped, ok := 0, true
	if e.Kind == EventDataLost || e.Kind == EventQuarantined || e.Kind == EventRenamed || e.Kind == EventDeaf {
		skipped, ok = n.lines[e.Kind].admit(pace())
	}
	if ok {
		err := e.Err
		if e.Kind == EventQuarantined { // the error repeats the key
			err = nil
		}
		attrs := why(e.Reason, err)
		if e.Key != "" {
			attrs = append(attrs, slog.String("key", escape.Quote(e.Key)))
		}
		level := slog.LevelWarn
		if _, reason := redisstore.Classify(e.Err); e.Kind == EventDeaf && needsOperator(reason) {
			level = slog.LevelError
			attrs = append(attrs, hint(reason)...)
		}
		n.write(level, "rate limiter: "+e.Kind.String(), attrs, skipped)
	}
	if n.onEvent != nil {
		n.guarded(func() { n.onEvent(e) })
	}
}

// why returns the attributes that say why something has happened, without empty ones.
func why(reason string, err error) (attrs []slog.Attr) {
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if err != nil {
		attrs = append(attrs, slog.String("err", reconcile.TextOf(err)))
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

// throttle lets logBurst lines through at once, and then one each logEvery.
type throttle struct {
	full    time.Duration // when a whole burst is admitted again, on the timer clock
	skipped int
}

// admit reports whether a line may be logged, and how many were skipped since the last one.
func (t *throttle) admit(now time.Duration) (skipped int, ok bool) {
	if t.wait(now) > 0 {
		t.skipped++
		return 0, false
	}
	skipped, t.skipped = t.skipped, 0
	t.full = max(t.full, now) + logEvery
	return skipped, true
}

// wait returns how long until a line may be logged.
func (t *throttle) wait(now time.Duration) time.Duration { return t.full - now - (logBurst-1)*logEvery }

// outage adds up the outages since the latest log line about one.
type outage struct {
	since  time.Time // start of the present outage; zero: there is none
	before Stats     // at that start
	count  int       // outages that have ended
	sum    time.Duration
	stats  Stats // what has happened in them: only the sums of units
}

// note applies a change of state.
func (o *outage) note(s State, stats func() Stats) {
	switch {
	case s.Mode == Degraded && o.since.IsZero():
		o.since, o.before = s.Since, stats()
	case s.Mode == Synced && !o.since.IsZero():
		is := stats()
		o.count++
		o.sum += s.Since.Sub(o.since)
		o.stats.AdmittedUnits += is.AdmittedUnits - o.before.AdmittedUnits
		o.stats.AckedUnits += is.AckedUnits - o.before.AckedUnits
		o.stats.ForgivenUnits += is.ForgivenUnits - o.before.ForgivenUnits
		o.stats.ExpiredUnits += is.ExpiredUnits - o.before.ExpiredUnits
		o.since = time.Time{}
	}
}

// report returns what a log line says about the outages that have ended, and resets the sums.
func (o *outage) report() []slog.Attr {
	if o.count == 0 {
		return nil
	}
	attrs := []slog.Attr{slog.Float64("outage_seconds", o.sum.Seconds()), slog.Int("outages", o.count), slog.Int64("admitted", o.stats.AdmittedUnits),
		slog.Int64("reported", o.stats.AckedUnits), slog.Int64("expired", o.stats.ExpiredUnits),
		slog.Int64("forgiven", o.stats.ForgivenUnits)}
	*o = outage{since: o.since, before: o.before}
	return attrs
}
