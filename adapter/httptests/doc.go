// Package httptests shows package httplimit in the routers that users have, and tests that it
// works there. It exports nothing: copy what you need from its examples. It is a module of
// its own, so that these routers are no dependencies of hybridlimit, and in no workspace, as they take
// a minute to compile: run its tests in this folder, with GOWORK=off.
//
// A middleware of httplimit is a func(http.Handler) http.Handler. chi takes that as it is;
// echo and fiber have adapters for it; for gin it is ten lines, see ginMiddleware.
//
// The files hook_*_test.go show a limiter in the hooks that frameworks have for one: the stores of echo's rate
// limiter and of ulule/limiter, the limiter of go-grpc-middleware, and an interceptor of connect-go.
package httptests
