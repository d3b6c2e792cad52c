// Package redistest starts real redis-server processes, and puts a faulty wire
// in front of them, for tests, benchmarks and demonstrations.
//
// A simulated Redis answers most commands alike, but not all, and not when it
// fails. What only the real one can show (its Lua, its out-of-memory answers, a
// process that is killed or frozen) is shown here with a child process on the
// loopback interface, without persistence, in a directory of its own. There are
// single servers ([Start]), a master with its replica and Sentinels
// ([StartReplicaSet]), and Clusters ([StartCluster]).
//
// Nothing in here is meant for production: there is no authentication and the
// data is thrown away.
package redistest
