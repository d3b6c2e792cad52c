// Package redisrate is a service while it moves from redis_rate. The directories before and after have
// the same program before and after it.
package redisrate
