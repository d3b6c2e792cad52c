// Package server puts the servers of hybridlimit serve together: one limiter and one rules
// file behind Envoy's rate limit service, Redis' protocol and HTTP for operators.
package server
