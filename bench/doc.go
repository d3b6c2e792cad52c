// Package bench measures hybridlimit against other limiters, in a module of
// its own so that their dependencies stay out of the library's. The program in
// demo shows the main job: several nodes that share limits through Redis, lose
// it, and come back. The one in cost measures what a limiter costs a service, processor time of
// Redis included. The one in small measures how exact fleets are where limits are a few units. The
// one in attack measures what an attacker who uses up keys does to others.
//
// Run the benchmarks with
//
//	go test -run '^$' -bench . ./bench
//
// and compare figures of one run only: machines differ, and so do moments. The
// program in report runs all of them and writes what is in results. Three things
// have flags, because they take too long for every day: all limiters and loads, the memory of
// many keys, and how exact fleets are.
//
//	go test -run '^$' -bench . -benchtime 30ms ./bench -full
//	go test -run '^$' -bench Memory -benchtime 1x ./bench -memory.keys 1000000
//	go test -run Accuracy ./bench -accuracy file
package bench
