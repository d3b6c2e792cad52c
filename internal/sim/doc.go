// Package sim runs whole fleets of limiters in virtual time, from a seed that draws the load and the
// faults, and checks after each step what is promised. All of it is tests.
//
// What is under test is real: the state machine of package reconcile, with the counters and algorithms
// below it, and in TestSimScripts the codec and the scripts. The simulator supplies the rest: clocks, wires, a model of Redis. It sees a machine as
// its driver does, by events and effects, and in a Snapshot what neither shows. What must hold is
// computed another way, by package oracle and by records of what was admitted and answered. Of a counter these
// ask only how many of its units wait.
//
// # Running it
//
//	go test -run '^TestSim$' ./internal/sim                          the first 40 seeds
//	go test -run TestSim -v ./internal/sim -sim.seed=7 -sim.runs=300  300 others, with tallies
//	go test -run TestSim ./internal/sim -sim.runs=10000 -sim.all      go on after a failure
//
// The other tests are histories that are written down: a fleet, a fault, what must follow. A seed plays
// the same history each time, so that a failure can be seen again and again. A change of what is drawn
// changes what a seed plays.
//
// # Reading a failure
//
// It has five parts, in this order:
//
//	seed 2: I3: Redis has 9 units of node16 on …   what does not hold, by whom, of which key
//	when 44.15s had passed                         the time of the world
//	23 nodes, 3 servers, 2 keys, …                 what the seed has drawn: options, rules, rates
//	11.2s: / server1 loses everything, …           the faults, each after the time at which it began
//	3.1 s  node0  send  5 9                        the latest 120 events, the newest last
//
// and below them the command that repeats it. The letter and number say what kind of promise it is:
//
//	I1, I4  a node admits no more than is left of the limit by what it must know, and shows no more
//	I2      nor more than its share while it is cut off
//	I3      each unit is booked once, or waits, or is counted as expired
//	I5      when all has healed, every node is synced, nothing is pending, and all agree with Redis
//	I7      queues, calls and probes have bounds
//
// Without a number it is an answer that cannot be, or a model that is not what the scripts are.
//
// Failures of the fleet begin with the name of a check instead (see guarantee_test.go), and end with what
// the oracle has added up: line by line, what counts and why.
//
// An event is the time in seconds, who, what, and two numbers:
//
//	admitted r k, refused r k   units asked for, what remains of key k by rule r
//	send                        shard and number of a flight; below it its keys, each with
//	asks for k, raises k        units, place in the flight (raises: tells again what Redis has lost)
//	batch v                     at a server: verdict, 1 if it was applied; shard, number
//	replies                     id of the pipeline, how many batches were answered
//	beat                        nodes that are live, shards that were asked for
//	state m                     the new mode; live nodes, shards that are cut off
//	publishes, hears            notices in a message
//
// Read backwards from the last event: which node acted, what it was last told of that key ("replies",
// "hears"), what reached the server meanwhile ("batch"). A fault that began shortly before is the likely
// cause, or one that is not over: data that was lost, a clock that was set. To see more of one key, add a
// note (world_test.go) where something happens to it; notes change the trace, and not the history.
//
// The machine may be wrong, or a check that did not consider something. Both happen. A check is only
// changed with a reason why the promise does not cover the case, and with a case that still fails.
// Whichever it was, add the seed to testdata/seeds.txt, which TestSimKept plays.
//
// # Files
//
//	world, plan, seeds        time, events and load; what a seed draws; the tests of seeds
//	node, calls, mishap       a machine with its counters and clock; its calls; what befalls it
//	net, air, forged          the wires; how notices travel, and forged ones
//	server, model, capacity   a server; its data; how long scripts take, and the queue before it
//	loss, split, lua          intricate losses, a split brain, the real scripts beside the model
//	oracle, share, checks     what a node must know, in all and of a key; what must hold of it
//	most, refusal             what it may count at the most; refusals by notices
//	fleet, guarantee          what all nodes have admitted, and what must hold of that
//	exact…                    calls that Redis decides, and what must hold of them
//	small, small_rows, far    how exact small limits are; servers that are far away
//	every                     all histories of a few steps, and drawn ones of more
//	pace, place, moves, …     histories: when machines send, where shards are, and the like
//	promise…                  histories for the rows of docs/guarantees.md
package sim
