// Package redisstore counts in Redis. It holds the Lua scripts, the form in which
// counters are kept there, and two ways to use them:
//
//   - [Limiter] asks Redis for every decision. Package remote is its public face, and
//     documents what is kept in Redis and what is promised.
//   - [Store] books what nodes have already admitted, many keys per call,
//     exactly once each, and tells what Redis knows. Package hybrid is built on
//     it.
//
// Both count in the same keys, which [Keyspace] names: a unit that one of them books
// is seen by the other.
//
// Redis may lose what it has acknowledged. A Limiter does not notice; a Store does,
// see [FateLost].
//
// A Redis Ring may be used as a client, but [Store.Beat] counts the nodes on
// one of its shards only.
//
// Errors begin with "remote: ", the package that users know.
package redisstore
