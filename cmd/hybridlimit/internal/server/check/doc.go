// Package check is rate limits for programs that have neither gRPC nor a client of Redis: JSON over
// HTTP. A request names a rule of the rules file, or is one of package rls in the JSON of its
// messages, as envoyproxy/ratelimit takes them at /json.
//
//	POST /check         200 if the request is admitted, 429 if it is over a limit
//	GET  /openapi.json  the description of this
//
// Errors are problem documents of RFC 9457.
package check
