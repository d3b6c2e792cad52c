// Package server puts the servers of hybridlimit serve together: one limiter and one rules
// file behind Envoy's rate limit service, Redis' protocol, JSON, and HTTP for operators.
package server
