package remote

import "github.com/hybridlimit/hybridlimit/internal/redisstore"

// ErrBadReply reports a reply that no script of this package gives: another
// program answers, or the client corrupts replies. It arrives wrapped.
var ErrBadReply = redisstore.ErrBadReply

// Class sorts errors by what can be done about them.
type Class uint8

// The classes. The zero Class is no error.
const (
	// ClassUnavailable may pass by itself: try again later.
	ClassUnavailable Class = iota + 1
	// ClassMisconfigured lasts until an operator changes something, such as a
	// password.
	ClassMisconfigured
	// ClassKey concerns one key only.
	ClassKey
)

// String returns the class as one lower-case word.
func (c Class) String() string { return redisstore.Class(c).String() }

// Classify returns the class of an error of this package, or of go-redis, and its
// cause in one short word: "timeout", "refused", "closed", "oom" … and "error" for
// all others. The words do not change between versions and are fit for a metric's
// label. A nil error has class 0 and the empty word.
//
// Redis closes the connection of a client that sends a script without the required
// password. go-redis may notice that only when it uses the connection again, so that
// "noauth" may alternate with "closed".
func Classify(err error) (Class, string) {
	class, reason := redisstore.Classify(err)
	return Class(class), reason
}
