package inside

import (
	"encoding/json"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/tally"
)

// Outcomes counts decisions by the state that they are based on, see package limit.
type Outcomes struct {
	Unsynced, Synced, Degraded, Local uint64
	Notice                            uint64 // only refusals, see package limit
	Remote                            uint64 // by Redis, see TakeExact
}

// Total returns the sum.
func (o Outcomes) Total() uint64 {
	return o.Unsynced + o.Synced + o.Degraded + o.Local + o.Notice + o.Remote
}

// RuleFigures counts the checks under the rules of one name since the limiter was made.
type RuleFigures struct {
	// Name is the name of the rules. All rules after the first 1,000 names, and checks with a
	// rule that is nil or zero, count under the empty name.
	Name            string
	Allowed, Denied Outcomes
	WouldRefuse     uint64 // see [Figures]
	Invalid         uint64
	Exempt          uint64 // see [Figures]
	Overshoot       int64  // see [Figures]
}

// Figures is what a limiter has done since it was made. Its fields are read one
// after another, not at one instant. As JSON its durations are seconds, and the names of these
// fields end in Seconds.
type Figures struct {
	Allowed, Denied Outcomes // decisions
	WouldRefuse     uint64   // checks that were admitted only because the rule is a dry run; neither in Allowed nor in Denied
	Invalid         uint64   // checks with a negative n or a rule that cannot be used, and those of CountInvalid; all denied, and not in Denied
	Exempt          uint64   // checks that were not made because nothing limits the caller, see CountExempt; in none of the above
	Conflicts       uint64   // how often a rule was used after another rule of its name that counts differently
	Rebuilt         uint64   // how often a rule was used after another one that is equal
	AdmittedUnits   int64    // those of a Wait or Reserve from when they are reserved on, see CancelledUnits
	BookedUnits     int64    // admitted units that Redis has booked: after a report, or when it decided (see TakeExact)
	ExpiredUnits    int64    // admitted units that had expired when Redis could be reached
	ForgivenUnits   int64    // units of an outage or of Charge above MaxDebt, which do not count in Redis; not in BookedUnits
	PendingUnits    int64    // admitted units whose report is waiting or under way: in none of the above, nor withdrawn
	// OldestPending is how long ago the oldest pending unit was admitted, 0 if there is none: of
	// the keys in memory, that which has had pending units for longest. While Redis answers it is
	// about a lag at most, see MaxLag. In an outage it is the time since the outage
	// began, although the first units of a window have expired meanwhile. Right after an outage
	// it may be too low for keys whose report was under way when the outage began.
	OldestPending   time.Duration `json:"-"` // as JSON: OldestPendingSeconds
	QueuedKeys      int64         // keys in memory that wait until they are reported, or their state is fetched
	QuarantinedKeys int64         // keys in memory that Redis cannot use now
	OverflowUnits   int64         // admitted units whose key had to leave memory before they were reported: never reported
	WithdrawnUnits  int64         // admitted units that were given back, or whose key was reset, before they were reported
	// RefundsGivenUp counts refunds of a key that were not sent again after Redis had lost
	// data, because they may have been applied before. Their units still count.
	RefundsGivenUp uint64
	RefundedUnits  int64 // units given back by Refund and Cancel, reported or not
	// UnreturnedUnits are units that Refund or Cancel was to give back, and that it has not: they had
	// expired, this node did not know them, or callers wait who have reserved after them. Units that
	// Redis keeps for such callers of another node are in RefundedUnits as well. It falls when these
	// reservations are cancelled, too, on this node. Those of RefundsGivenUp are not among them.
	UnreturnedUnits int64
	// CancelledUnits are admitted units whose Wait ended with an error, or whose reservation was
	// cancelled. Fewer are given back if some have expired, or if later callers have reserved
	// after them.
	CancelledUnits int64
	// ChargedUnits are admitted units that were counted by Charge, without a decision. They include
	// those that were forgiven at once.
	ChargedUnits int64
	// ExactAsked is how many calls of TakeExact have asked Redis, and ExactFailed how
	// many of them have returned an error.
	ExactAsked, ExactFailed uint64

	Keys          int64 // keys in memory
	Evictions     uint64
	Overflow      uint64 // decisions of keys that found no room in memory, because all others had to stay
	Remembered    int64  // keys that have left memory and are remembered, see MaxRemembered
	Displaced     uint64 // remembered keys that were forgotten although their units still counted, because others took their place
	Batches       uint64 // script calls, one per shard, including those sent again
	KeysSynced    uint64 // keys in them
	ResentBatches uint64 // script calls sent again, because there was no answer or data was lost
	// Behind is the longest time that a report in the latest script call had waited after it
	// was due. If it is more than some milliseconds, Redis does not keep up, and the state of
	// keys is older than MaxLag by that time.
	Behind     time.Duration `json:"-"` // as JSON: BehindSeconds
	Heartbeats uint64
	Failures   uint64 // exchanges with Redis that failed
	// FailuresBy is Failures by reason: the words that the state has while degraded. Every
	// possible word has an entry. Without Redis there are none.
	FailuresBy     map[string]uint64
	Exchanges      Latency   // exchanges with Redis that were answered
	LastSuccess    time.Time // when the latest of them ended, by the limiter's clock; zero: there was none
	Losses         uint64    // losses of data that were noticed, per shard
	RolledBackKeys uint64    // keys of which Redis reported less than it had before
	Quarantined    uint64    // how often a key could not be used in Redis although its batch was applied
	BadReplies     uint64    // replies that contradict the protocol
	Renames        uint64    // how often another process, such as a clone of this one, was seen to use the name of this node
	StateChanges   uint64
	// Mismatches is how many other layouts (another number of Shards, another version of
	// this library) the latest heartbeat has found on the same Redis with the same prefix.
	// Processes with another layout share no limit with this one.
	Mismatches int64
	// Notices that keys are used up, or have room again: published, received from other nodes, and
	// published late because Redis should deliver no more than 20,000 messages a second.
	NoticesSent, NoticesHeard, NoticesLate uint64
	// NoticesMissed is how many messages with notices were dropped because they came faster than
	// this node can handle them.
	NoticesMissed uint64

	HookPanics uint64 // panics recovered from OnStateChange, OnEvent and the logger
	// Overshoot is the largest number of units by which Redis has reported a key above its
	// limit.
	Overshoot int64
	// Rules counts the decisions by rule, in the order of the names. Their sums are Allowed,
	// Denied, WouldRefuse, Invalid and Exempt.
	Rules []RuleFigures
}

// outcomesOf converts what was counted in each group of sources.
func outcomesOf(n [tally.Groups]uint64) Outcomes {
	return Outcomes{Unsynced: n[tally.Unsynced], Synced: n[tally.Synced], Degraded: n[tally.Degraded], Local: n[tally.Local], Notice: n[tally.Notice], Remote: n[tally.Remote]}
}

// AddRules adds what was counted by rule to s. Units that Redis has admitted itself count as confirmed.
func (s *Figures) AddRules(all []tally.Named) {
	var allowed, denied [tally.Groups]uint64
	for _, is := range all {
		r := RuleFigures{Name: is.Name, Allowed: outcomesOf(is.Allowed), Denied: outcomesOf(is.Denied), WouldRefuse: is.WouldRefuse, Invalid: is.Invalid, Exempt: is.Exempt}
		s.Rules = append(s.Rules, r)
		s.WouldRefuse += r.WouldRefuse
		s.Invalid += r.Invalid
		s.Exempt += r.Exempt
		for g, units := range is.Units {
			allowed[g] += is.Allowed[g]
			denied[g] += is.Denied[g]
			if s.AdmittedUnits += units; g == tally.Remote {
				s.BookedUnits += units
			}
		}
	}
	s.Allowed, s.Denied = outcomesOf(allowed), outcomesOf(denied)
}

// Latency describes how long exchanges with Redis have taken that were answered in full: from
// when a pipeline or a heartbeat was sent until its answer was read. Those that failed are in
// [Figures].Failures instead. The zero Latency is that of no exchange.
type Latency struct {
	Last, Max, Sum time.Duration
	// Buckets[i] is how many took at most Bounds()[i], and more than the bound before it. The
	// last one is how many took more than all bounds.
	Buckets [latencyBounds + 1]uint64
}

// LatencyBounds are the upper bounds of all buckets but the last, which has none.
var LatencyBounds = [12]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

const latencyBounds = len(LatencyBounds)

// Bounds returns the upper bounds of all Buckets but the last. They are always the same.
func (Latency) Bounds() [latencyBounds]time.Duration { return LatencyBounds }

// Count returns the number of exchanges.
func (l Latency) Count() (n uint64) {
	for _, b := range l.Buckets {
		n += b
	}
	return n
}

// plain is Figures without its methods.
type plain Figures

// text is the JSON form of Figures. The durations are not among the other fields.
type text struct {
	plain
	OldestPendingSeconds, BehindSeconds float64
}

// MarshalJSON returns an object with the fields of s, but OldestPendingSeconds, BehindSeconds and those
// of Exchanges for durations.
func (s Figures) MarshalJSON() ([]byte, error) {
	return json.Marshal(text{plain(s), s.OldestPending.Seconds(), s.Behind.Seconds()})
}

// latencyText is the JSON form of a Latency.
type latencyText struct {
	LastSeconds, MaxSeconds, SumSeconds float64
	Buckets                             [latencyBounds + 1]uint64
}

// MarshalJSON returns an object with LastSeconds, MaxSeconds, SumSeconds and Buckets.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyText{l.Last.Seconds(), l.Max.Seconds(), l.Sum.Seconds(), l.Buckets})
}
