// Package xtimerate compares package local, asked directly, with golang.org/x/time/rate. Who moves from there takes
// compat/xrate, which has the same methods: its tests compare these.
package xtimerate
