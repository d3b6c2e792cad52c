package remote

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// ErrBadReply reports a reply that no script of this package gives: another
// program answers, or the client garbles replies. It arrives wrapped.
var ErrBadReply = redisstore.ErrBadReply

// Class says what may help against an error.
type Class uint8

// The classes. The zero Class is no error.
const (
	// ClassUnavailable may pass by itself: try again later.
	ClassUnavailable Class = iota + 1
	// ClassMisconfigured stays until an operator changes something, such as a
	// password.
	ClassMisconfigured
	// ClassKey concerns one key only.
	ClassKey
)

// String returns the class as one lower-case word.
func (c Class) String() string { return redisstore.Class(c).String() }

// Classify sorts an error of this package, or of go-redis, and names its cause
// in one short word that does not change between versions, fit for a metric's
// label: "timeout", "refused", "closed", "oom" … and "error" for all others.
// No error is class 0 and no word.
//
// Redis closes the connection of a client that sends a script without having
// given the password that is wanted; go-redis may notice only when it uses that
// connection again. "noauth" may therefore take turns with "closed".
func Classify(err error) (Class, string) {
	class, reason := redisstore.Classify(err)
	return Class(class), reason
}

// wrap puts the package's name in front of an error.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("remote: %w", err)
}
