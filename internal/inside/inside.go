// Package inside is what a limiter of package hybrid has for the other packages of this project, and
// not for users: all figures, the keys in memory, the list of nodes, and counts of checks that were
// not made.
package inside

import (
	"context"
	"reflect"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Key is the argument of a limiter's method Inside. Users cannot name it.
type Key struct{}

// View is the inside of a limiter. All methods are safe for concurrent use.
type View interface {
	// CountInvalid counts a check that could not be made as invalid, such as that of a request
	// without a key. A nil rule counts under the empty name.
	CountInvalid(rule *limit.Rule)
	// CountExempt counts a check under the rules of a name that was not made, because nothing limits
	// who asks.
	CountExempt(name string)
	// Figures returns all figures.
	Figures() Figures
	// QuickFigures is Figures without a look at each key, for those who ask every second. What popular
	// keys have admitted since their last report is missing, and so are QueuedKeys, QuarantinedKeys and
	// OldestPending.
	QuickFigures() Figures
	// Explain says how key is decided under each of some rules, without any under those in use, and
	// why: by what is in memory and by what Redis says now. It consumes nothing.
	//
	// It asks Redis in one round trip, about 200 rules at most, those first under which the key is in
	// memory. While the limiter is degraded it does not ask. The error is about a rule; that Redis
	// cannot be reached is in [Stored].Err.
	Explain(ctx context.Context, key string, rules ...*limit.Rule) ([]Explanation, error)
	// Nearest returns the keys in memory that have the least left of their limits, of the fullest
	// first: at most as many as most, which is at most 1,000. It looks at 100,000 keys at most, which
	// takes some 20 ms, and does not ask Redis. Keys of which nothing is used are left out.
	Nearest(most int) []Explanation
	// Nodes asks Redis for the live nodes. Without Redis there are none.
	Nodes(ctx context.Context) ([]Node, error)
	// Rules returns the rules in use, in the order of their names: of each name the latest, or one that
	// differs from it only in the limit. Of more than 1,024 names some are missing.
	Rules() []*limit.Rule
	// ID returns the name of this node in Redis. It is random for each start, and empty without Redis.
	// It changes when another process is seen to use it, for example a clone of the virtual machine.
	ID() string
}

// Of returns the inside of a limiter, or of the one that it wraps: that of [limit.WithContext], or one
// that is embedded. It is nil if the limiter is not one of package hybrid.
func Of(lim any) View {
	if l, ok := unwrap(lim).(interface{ Inside(Key) View }); ok {
		return l.Inside(Key{})
	}
	return nil
}

// IsNil reports whether there is no limiter: nil, or a nil pointer in an interface, as a constructor
// returns with its error. Such a limiter decides nothing.
func IsNil(lim any) bool {
	lim = unwrap(lim)
	v := reflect.ValueOf(lim)
	return lim == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// CheckRule returns why a limiter cannot decide a rule, if it can say so.
func CheckRule(lim any, rule *limit.Rule) error {
	if c, ok := unwrap(lim).(interface{ CheckRule(*limit.Rule) error }); ok && !IsNil(lim) {
		return c.CheckRule(rule)
	}
	return nil
}

func unwrap(lim any) any {
	if w, ok := lim.(interface{ Unwrap() any }); ok {
		return w.Unwrap()
	}
	return lim
}

// Explanation says how a limiter decides a key now, and on what knowledge.
type Explanation struct {
	// Key is the key. Of a key of more than 256 bytes Nearest knows only the SHA-256 sum, in
	// hexadecimal digits.
	Key string
	// Rule is the rule that the key is decided by.
	Rule *limit.Rule
	// Latest is the rule of the latest check on this node, if that has another limit: then Result
	// is not what that caller was answered.
	Latest *limit.Rule
	// Result is the answer to a check for one unit, which is not made: RetryAfter says when the
	// next unit fits, and Source on what the answer rests.
	Result limit.Result
	// InMemory is set if this node has a counter of the key: it was used lately. What follows is
	// zero otherwise.
	InMemory bool
	// Known is how many units count as far as Redis has said, and Answered when it has said so,
	// by the limiter's clock; zero: it has not.
	Known    int64
	Answered time.Time
	// Pending is how many units were admitted here that Redis has not confirmed.
	Pending int64
	// Notice is when another node has announced that the key is used up, if that is why it is
	// refused, and NoticeUntil until when. Zero: there is no such notice; Notice is zero also if the
	// key is not in memory.
	Notice, NoticeUntil time.Time
	// Quarantined is set if Redis cannot use the key.
	Quarantined bool
	// Redis is what Redis says, if it was asked.
	Redis *Stored
	// Text is all that in a sentence or two. Nearest leaves it empty.
	Text string
}

// Stored is what Redis has of a key.
type Stored struct {
	// Used is how many units count there, those above the limit included.
	Used int64
	// Result is the answer of Redis to a check for one unit.
	Result limit.Result
	// Err says why there is no answer: that Redis is away, or a [*limit.KeyError] if the key is
	// unusable. Then the rest is zero.
	Err error
}

// Node is a live process that shares limits through Redis.
type Node struct {
	// ID is its name in Redis.
	ID string
	// Name is what its option NodeName says; Program is the file name of its executable, and
	// Version the version of this library in it. They are empty if the node does not say.
	Name, Program, Version string
	// Mode and Since are those of its state, Since and Started by the clock of that node.
	Mode           string
	Since, Started time.Time
	// Lag is how old its view of a key in use may be: its MaxLag, and by how much Redis does not
	// keep up.
	Lag time.Duration
	// Fallback is its policy in an outage, and Share how much of each limit it admits then, as
	// far as it knows now: 1 is all of it.
	Fallback string
	Share    float64
	// Gone is how long it counts as alive if nothing is heard of it.
	Gone time.Duration
}
