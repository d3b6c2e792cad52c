package hybrid

import "time"

// reminder repeats the line about a fault for as long as the fault lasts: the first one may have been
// overlooked, and a process that limits by itself does so for days.
type reminder struct {
	at    time.Duration // when it is due; 0: there is nothing to repeat
	event Event         // that was logged; of the state there is none
}

// remindEvery is how often the line about a fault that lasts is repeated.
const remindEvery = 5 * time.Minute

// remind repeats the line of a kind if its fault lasts.
func (n *notifier) remind(kind EventKind) {
	r := &n.reminders[kind]
	r.at = 0
	switch s := *n.now.Load(); {
	case kind == EventNoticesDown && s.NoticesDown != "", kind == EventMismatch && n.stats().Mismatches > 0:
		n.logEvent(r.event, 0)
	case kind == kindState && s.Mode == Degraded:
		n.logOutage(s, n.outage.lasting(n.stats()), 0)
	case kind == kindState: // it is about to end, or to be logged as ended
		r.at = pace() + remindEvery
	}
}
