// Package check is the rate limit service for programs that have neither gRPC nor a client of
// Redis: JSON over HTTP. Requests and answers are those of package rls, in the JSON of their
// messages, as envoyproxy/ratelimit takes them at /json.
//
//	POST /check         200 if the request is admitted, 429 if it is over a limit
//	GET  /openapi.json  the description of this
//
// Errors are problem documents of RFC 9457.
package check
