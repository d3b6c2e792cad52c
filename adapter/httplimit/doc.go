// Package httplimit limits the requests that an HTTP server answers, and those that an HTTP
// client sends. It needs nothing but net/http, and works with every router whose middleware
// is a func(http.Handler) http.Handler.
//
//	perUser := limit.Must(limit.PerMinute("api", 100))
//	protect, err := httplimit.New(limit.WithContext(lim), perUser, httplimit.By(userOf), httplimit.Options{})
//	…
//	http.Handle("/", protect(handler))
//
// A request above the limit is answered with 429, Retry-After and a problem document, and
// does not reach the handler. Each response says in the fields RateLimit and
// RateLimit-Policy what is left.
//
// Rule and key are required. There is no default for the key, because none is safe: the
// address of a client behind a proxy is what somebody has written into a header, see
// [ByAddress]. A request without a key, or one that cannot be decided, is refused, never
// limited together with others and never let through, see [Options].OnError.
//
// [NewAll] asks several limits at once, all or none, with a rule, a key and a cost that
// depend on the request. [NewTransport] is for clients: it waits before it calls an upstream
// service, or refuses to, and follows what the upstream says about its own limits.
//
// The package decides nothing and keeps no state: that is the limiter's. A limiter of package
// remote is taken as it is. Those of packages hybrid and local answer from memory, without a
// context: [limit.WithContext] adds it.
//
// With a limiter of package hybrid a rule may be exact (see [limit.Rule.Exact]): Redis then decides the
// request, within its context, unless the node knows that it would refuse. If one limit of several is
// exact, Redis decides all of them together. A call that Redis does not answer is the business of
// [Options].OnError. In an outage that has been noticed the limiter's Fallback decides instead: requests
// pass, or are refused with 429. A [Transport] takes exactly only with NoWait.
package httplimit
