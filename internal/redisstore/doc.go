// Package redisstore counts in Redis. It holds the Lua scripts, and the form in which
// counters are kept there. A [Store] runs them:
//
//   - [Store.Take], [Store.Refund] and [Store.Renew] ask for units and hand them back, each
//     call once at most. Package remote is built on them, and documents what is kept in Redis
//     and what is promised.
//   - [Store.Exec] books what nodes have already admitted, many keys per call,
//     exactly once each, and tells what Redis knows. Package hybrid is built on
//     it.
//
// Both count in the same keys, which [Keyspace] names: a unit that one of them books
// is seen by the other.
//
// Redis may lose what it has acknowledged. Take does not notice; Exec does,
// see [FateLost].
//
// A Redis Ring may be used as a client, but [Store.Beat] counts the nodes on
// one of its shards only.
//
// Errors begin with "remote: ", the package that users know.
package redisstore
