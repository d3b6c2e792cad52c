// Package grpclimit limits the calls of gRPC servers and clients with a limiter of
// hybridlimit.
//
//	perPeer := limit.Must(limit.TokenBucket("api", 10, time.Second, 20))
//	unary, err := grpclimit.UnaryServerInterceptor(limit.WithContext(lim), perPeer, grpclimit.ByPeer())
//	…
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary))
//
// A limiter of package remote is taken as it is. Those of packages hybrid and local answer from
// memory, without a context: [limit.WithContext] adds it.
//
// With a limiter of package hybrid a rule may be exact (see [limit.Rule.Exact]): Redis then decides the
// call, within its context, unless the node knows that it would refuse. If one limit of several is
// exact, Redis decides all of them together. What it does not decide is codes.Unavailable, see below.
// With [Wait] a rule is not exact.
//
// The rule and the key function are required, because there is no safe default of
// either: a constructor without them returns an error. So does one with an option that
// makes no sense there. Unary calls and streams need an interceptor each; calls of one
// kind are not limited by the interceptor of the other. Interceptors of one limiter and
// one rule share the counters of a key.
//
// # Answers
//
// A refused call ends with a [*RefusedError], whose status is one of these:
//
//   - codes.ResourceExhausted: the limit refused. The details are a RetryInfo with the
//     wait after which the same call succeeds if nobody else calls, left out when no
//     waiting helps ([limit.Never]); and a QuotaFailure that names the policy, which is
//     the name of the rule. The key is in it only with [ShowKey].
//   - codes.InvalidArgument, or what [KeyErrorCode] says: the key function returned an
//     error or an empty key. Such calls never share a counter, and never pass.
//   - codes.Internal: the limiter cannot decide, because the cost is negative or the
//     rule does not fit. Correct the service.
//   - codes.Unavailable: the limiter returned an error, such as that Redis is away, or was
//     closed. With [FailOpen] such calls pass while it is away.
//   - codes.Canceled or codes.DeadlineExceeded: the call's own context ended before.
//
// Messages are stable: "rate limit exceeded: policy NAME", NAME being quoted as in Go.
// Errors of key functions are not sent to the client: [RefusedError].Err has them, for
// interceptors that log.
//
// # Streams
//
// Opening a stream counts like a unary call. [EachMessage] counts each message that a
// server receives, too, under a rule of its own. A refused message ends the stream.
//
// # Clients
//
// A client interceptor refuses before the call is sent, or with [Wait] waits until it is
// admitted. [FollowRetryInfo] makes the limiter honour what a server asks for. No
// interceptor repeats a call.
//
// # What is not promised
//
//   - [ByPeer] is the other end of the connection: behind a proxy, that is the proxy.
//   - [ByMetadata] is what the caller says. Authenticate first, in an interceptor before
//     this one.
//   - Calls are counted when they begin: not how many run at a time, nor bytes, unless
//     [Cost] says so, or [Settle] when they have ended.
//   - A panic of a function that an option holds is not recovered.
package grpclimit
