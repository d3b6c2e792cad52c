// Package hybridlimit is the root of a rate limiter that decides in the
// process and shares its limits through Redis. It holds no code of its own:
// start with package [github.com/hybridlimit/hybridlimit/hybrid].
package hybridlimit
