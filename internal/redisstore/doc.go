// Package redisstore keeps counters in Redis. It has the Lua scripts, and the format in
// which counters are stored. A [Store] runs the scripts:
//
//   - [Store.Take], [Store.Refund] and [Store.Renew] take, refund and set units. Each call
//     is executed at most once. Package remote is built on them, and documents what is kept
//     in Redis and what is promised.
//   - [Store.Exec] books units that nodes have already admitted, many keys per call,
//     each batch exactly once, and returns what Redis has counted. Package hybrid is
//     built on it.
//
// Both use the same counters, which [Keyspace] names: each sees the units that the other
// books.
//
// Redis may lose what it has acknowledged. Take does not notice; Exec does,
// see [VerdictLost].
//
// A Redis Ring may be used as a client, but [Store.Beat] counts the nodes on
// one of its shards only.
//
// Errors begin with "remote: ", the package that users know.
package redisstore
