// Package resp serves limits over the protocol of Redis, so that a program in any language
// limits with the Redis client that it has.
//
//	CL.THROTTLE key max_burst count period [quantity]
//	HL.TAKE rule key [quantity]
//	HL.PEEK rule key
//
// CL.THROTTLE has the arguments and the answer of redis-cell. HL.TAKE and HL.PEEK use the
// rules of the rules file. All other commands are what clients send when they connect.
//
// A client can only harm itself: a command that cannot be understood is an error reply, one
// that is too large ends its connection with an error reply, and what is kept for a
// connection, for keys and for rules is bounded.
package resp
