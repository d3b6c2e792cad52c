// Package tally counts decisions by the name of their rule, so that goroutines rarely share
// a cache line.
package tally
