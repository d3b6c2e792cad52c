package remote

import (
	"context"
	"net"

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

// BoundReplies returns a dialer whose connections fail, with [ErrBadReply], as
// soon as the server announces or sends a reply that would take more than most
// bytes of memory; 0 means 64 MiB, more than
// any script of this package answers.
//
// go-redis sets memory aside for as much as a header announces, before any of
// it has arrived, and descends into nested arrays as deep as they go. A dozen
// bytes from whoever answers at Redis' address are enough to end the process:
// running out of memory or of stack cannot be recovered from, and the goroutines
// in which a ClusterClient runs its pipelines recover from nothing. Where the
// server, or the way to it, is not trusted as much as the process itself, build
// the client with
//
//	o.Dialer = remote.BoundReplies(redis.NewDialer(o), 0)
//
// It costs about 1 ns per byte of a reply's headers and nothing else. The bound
// holds for everything that this client is used for.
func BoundReplies(dial func(ctx context.Context, network, addr string) (net.Conn, error), most int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return redisstore.BoundReplies(dial, most)
}
