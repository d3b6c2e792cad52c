package hybrid

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
)

// Options configures a [Limiter]. A field that is zero takes the default that its comment
// names.
type Options struct {
	// MaxKeys is how many keys are held in memory. There is room for a quarter more, and for
	// at least 4,096 more. Default 65,536; at most 1<<26.
	MaxKeys int
	// MaxRemembered is of how many keys that had to leave memory the limiter remembers what they have
	// used, as long as it counts: 16 bytes for each, allocated as they come. Above that, keys that have
	// used the smallest share of their limit are forgotten first. Default 32 times MaxKeys; at most
	// 1<<30.
	MaxRemembered int
	// SyncInterval is the time between two collections of reports. The state of a key that is
	// used for the first time, or again after MaxLag, is fetched with the next collection, and so
	// is that of a key of which a notice says that it has room again. No notice is published of a
	// key that is used up for less than this. Default 100 ms; 1 ms to 1 min.
	SyncInterval time.Duration
	// MaxLag is how long an admitted unit may stay unreported, and how old the state of a key in
	// use may be, if nothing is urgent. It is never longer than a quarter of the time for which
	// units of the rule count, nor shorter than SyncInterval. Reports become urgent when this
	// node has used half of its share of what is left of the limit. Where that is more than 4
	// units, 4 are enough, or a quarter of its share if that is more. The state of a key that is
	// used up in Redis is fetched only every 5 s while notices arrive, see PollOnly. Default 1 s,
	// or SyncInterval if that is longer; at most 1 min. SyncInterval is the tightest setting.
	// Redis keeps the state of a key longer by MaxLag.
	MaxLag time.Duration
	// CommandTimeout is how long a call of Redis may take. A server that is far away has longer:
	// five times the shortest answer of the last seconds, because a call may have to make a
	// connection. A server that has not answered for several calls has twice as long each time,
	// and so has a report that got no answer twice. The most is eight times CommandTimeout, also
	// for [Limiter.Set] and [Limiter.Reset]. A server that has not answered yet has ten times
	// CommandTimeout for its first answer: until then the limiter is [Resyncing], and after that
	// [Degraded]. Default 250 ms, which is right for a Redis 0.1 to 150 ms away; 1 ms to 1 min.
	CommandTimeout time.Duration
	// Shards is the number of groups that keys are divided into. A script call carries keys of
	// one group, and a Cluster keeps each group on one of its masters. All processes that share
	// limits must use the same number. Default: 1 for a single server or a Sentinel group (a
	// [redis.Client]), else 64; at most 1,024.
	Shards int
	// KeyPrefix begins every Redis key. All processes that share limits must use the same.
	// Default "hl"; at most 64 bytes, without braces.
	KeyPrefix string
	// Fallback is the policy for checks while Redis is unreachable. Default FairShare.
	Fallback Fallback
	// MaxDebt bounds what a token bucket repays after an outage, and after [Limiter.Charge]: at most
	// its burst and what it gets in MaxDebt, so that these units cause refusals for no longer than
	// MaxDebt. The rest is forgiven, and counted in [Stats].ForgivenUnits. Units that a check has
	// admitted while Redis was reachable count completely, and so do units that are ahead of a
	// waiting reservation. A window needs no bound, because its units expire. Default 0: the time
	// in which the empty bucket fills; negative: nothing above the burst is repaid.
	MaxDebt time.Duration
	// ExpectedNodes is how many nodes the fleet has at least. A node assumes this number while it
	// does not know the real one: from its start until four heartbeats, or MaxBackoff if that is
	// longer, after the first answer of Redis.
	//
	// With [FairShare] each unit costs ExpectedNodes units from the first check until the first
	// answer. So a fleet that starts while Redis is unreachable, or whose processes are replaced
	// one by one then, admits about one limit. A reachable Redis has answered within
	// milliseconds; a burst before that finds only this node's share. The other policies apply
	// once Redis is known to be unreachable; before that a check finds the whole limit.
	//
	// Default 0: unknown, which counts as 1; at most 100,000.
	ExpectedNodes int
	// HeartbeatInterval is how often a node shows that it is alive. A node is gone after three
	// missed heartbeats, and two heartbeats later the others have its share. Default 1 s; 10 ms
	// to 1 min.
	HeartbeatInterval time.Duration
	// MaxBackoff bounds the pauses between probes of an unreachable Redis, which begin with a twentieth of
	// it. A node is in contact again at most one pause after Redis is back. Default 2 s; 1 ms to 1 h.
	MaxBackoff time.Duration
	// DegradeAfter is how many rounds of exchanges must fail in a row before the fallback policy
	// applies. Exchanges that were under way at the same time are one round. With the default of
	// 2, a server that stalls for 0.3 s is no outage, and one that stalls for twice
	// CommandTimeout is. Default 2; at most 100.
	DegradeAfter int
	// PollOnly: the limiter sends and receives no notices, and needs no Pub/Sub. Otherwise a node that
	// learns from Redis that a key is used up publishes that at once, on a channel that each node
	// subscribes to with a connection of its own. With PollOnly a node learns it only when it next asks
	// Redis, or reports the key, after it has admitted a unit that is too many. Set it the same everywhere.
	PollOnly bool
	// NodeName is what this node is called where nodes are listed, as on the admin page: at most
	// 128 bytes of printable UTF-8. Default: host/program[process number]. With "-" the node has
	// no name and does not say which program it is: names of hosts may be private.
	NodeName string
	// Clock is where time comes from. Default: [clock.System].
	Clock clock.Clock
	// Logger gets one line per change of the state and per event (see [EventKind]), at level
	// Info, Warn or, for what only an operator can end, Error. Of one kind there are 6 lines at
	// once, and then one every 10 s that says how many were skipped. The line at the end of an
	// outage says how long it was, and how many of its units were reported, expired or forgiven.
	// Outages of less than a second that end by themselves share one line a minute. While an
	// outage, [EventNoticesDown] or [EventMismatch] lasts, its line is repeated every 5 minutes.
	// Its handler may use the limiter but not close it.
	//
	// Default: [slog.Default] when the line is written, for levels Warn and Error and for the
	// end of an outage. A logger of [slog.DiscardHandler] is silent. go-redis writes lines of
	// its own to standard error, until its SetLogger is called.
	Logger *slog.Logger
	// OnStateChange is called after each change of the state, one call at a time, from a
	// goroutine of its own that holds no lock. It may use the limiter but not close it. A panic
	// in it is recovered and counted. If it is slow, changes in between may be skipped. Default:
	// none.
	OnStateChange func(State)
	// OnEvent is called for each event, in the same way and never at the same time as
	// OnStateChange. If it is slow, the oldest of more than 64 events may be skipped. Default:
	// none.
	OnEvent func(Event)
}

// withDefaults returns o with defaults in the fields that are zero.
func (o Options) withDefaults() Options {
	setDefault(&o.SyncInterval, 100*time.Millisecond)
	setDefault(&o.MaxLag, max(time.Second, o.SyncInterval))
	setDefault(&o.CommandTimeout, 250*time.Millisecond)
	setDefault(&o.Shards, redisstore.DefaultShards)
	setDefault(&o.KeyPrefix, "hl")
	setDefault(&o.HeartbeatInterval, time.Second)
	setDefault(&o.MaxBackoff, 2*time.Second)
	setDefault(&o.DegradeAfter, 2)
	setDefault(&o.NodeName, defaultNodeName())
	o.Clock = clocks.Or(o.Clock)
	return o
}

// setDefault sets v to d if it is zero.
func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// validate returns one error that names everything that is wrong with o.
func (o Options) validate() error {
	errs := []error{
		within("SyncInterval", o.SyncInterval, time.Millisecond, time.Minute),
		within("MaxLag", o.MaxLag, o.SyncInterval, max(time.Minute, o.SyncInterval)),
		within("CommandTimeout", o.CommandTimeout, time.Millisecond, time.Minute),
		within("HeartbeatInterval", o.HeartbeatInterval, 10*time.Millisecond, time.Minute),
		within("MaxBackoff", o.MaxBackoff, time.Millisecond, time.Hour),
		within("Shards", o.Shards, 1, 1024),
		within("DegradeAfter", o.DegradeAfter, 1, 100),
		within("ExpectedNodes", o.ExpectedNodes, 0, 100_000),
		within("MaxKeys", o.MaxKeys, 0, table.MaxMaxKeys),
		within("MaxRemembered", o.MaxRemembered, 0, table.MaxMaxRemembered),
	}
	if o.Fallback > FailClosed {
		errs = append(errs, fmt.Errorf("hybrid: Fallback %d: unknown", o.Fallback))
	}
	if len(o.KeyPrefix) > 64 || strings.ContainsAny(o.KeyPrefix, "{}") {
		errs = append(errs, fmt.Errorf("hybrid: KeyPrefix %q: must be at most 64 bytes, without braces", o.KeyPrefix))
	}
	if len(o.NodeName) > maxNodeName || !utf8.ValidString(o.NodeName) || strings.ContainsFunc(o.NodeName, unprintable) {
		errs = append(errs, fmt.Errorf("hybrid: NodeName %.128q: must be at most %d bytes of printable UTF-8", o.NodeName, maxNodeName))
	}
	return errors.Join(errs...)
}

// within returns an error if an option is not lo to hi.
func within[T int | time.Duration](name string, v, lo, hi T) error {
	if v < lo || v > hi {
		return fmt.Errorf("hybrid: %s %v: must be %v to %v", name, v, lo, hi)
	}
	return nil
}

// config returns what package reconcile needs of o.
func (o Options) config() reconcile.Config {
	return reconcile.Config{
		SyncInterval: int64(o.SyncInterval), MaxLag: int64(o.MaxLag), CommandTimeout: int64(o.CommandTimeout),
		HeartbeatInterval: int64(o.HeartbeatInterval), MinBackoff: int64(max(o.MaxBackoff/20, time.Millisecond)), MaxBackoff: int64(o.MaxBackoff),
		DegradeAfter: o.DegradeAfter, ExpectedNodes: o.ExpectedNodes,
		Fallback: reconcile.Fallback(o.Fallback), Notices: !o.PollOnly,
	}
}

// Fallback is the policy for checks while Redis is unreachable.
type Fallback uint8

// The policies, in the order of those of package reconcile. FairShare is the default.
const (
	// FairShare makes each unit cost as many units as there were live nodes, so that all nodes
	// together admit about one limit. A node always admits at least one unit per limit period.
	FairShare Fallback = iota
	// FullLimit lets each node admit the whole limit.
	FullLimit
	// FailOpen admits every check for no more units than the limit.
	FailOpen
	// FailClosed refuses every check, with a RetryAfter of a second: 429 of the middlewares, not 503.
	FailClosed
)

var fallbackNames = [...]string{"fair-share", "full-limit", "fail-open", "fail-closed"}

// String returns the policy in lower case, with dashes.
func (f Fallback) String() string {
	if int(f) < len(fallbackNames) {
		return fallbackNames[f]
	}
	return fmt.Sprintf("fallback(%d)", uint8(f))
}

// effect says what a node admits by f if it knows of so many live nodes.
func (f Fallback) effect(nodes int) string {
	switch {
	case f == FailOpen:
		return "every check passes that is not larger than the limit"
	case f == FailClosed:
		return "every check is refused"
	case f == FairShare && nodes > 1:
		return fmt.Sprintf("this node admits 1/%d of the limit by itself", nodes)
	}
	return "this node admits the whole limit by itself"
}

// advice is effect with what may be wrong with it.
func (f Fallback) advice(nodes int) string {
	if f == FairShare && nodes <= 1 {
		return f.effect(nodes) + ", because it knows of no other: see ExpectedNodes"
	}
	return f.effect(nodes)
}
