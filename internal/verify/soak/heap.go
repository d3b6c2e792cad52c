package main

import (
	"runtime"
	"runtime/metrics"
)

// What a connection keeps: the buffers of go-redis and those of a proxy, both of two
// directions.
const (
	clientBuffers = 2 * 32 << 10
	proxyBuffers  = 2 * 64 << 10
)

// What a lap keeps that is not judged yet, and how much of that for each item.
const (
	lapBytes   = 96
	askedBytes = 16
)

// heap returns how much memory is live, but for what there is more of the busier this
// machine is. Those are the buffers of connections, of which pools make more when exchanges
// take longer, and the laps that the judge has not come to yet.
func (r *run) heap() int64 {
	live := liveHeap()
	laps := r.judge.kept.Load()
	for _, n := range r.nodes {
		n.mu.Lock()
		laps += int64(len(n.laps))
		live -= clientBuffers * int64(n.rdb.PoolStats().TotalConns)
		n.mu.Unlock()
		live -= proxyBuffers * int64(n.proxy.Conns())
	}
	return live - laps*(lapBytes+askedBytes*int64(len(r.traffic.items)))
}

// liveHeap collects garbage and returns what is left. What is made during a collection counts as
// left, and a busy machine takes long for one: the least of several is nearest to the truth.
func liveHeap() (least int64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for i := range 3 {
		runtime.GC()
		metrics.Read(live)
		if v := int64(live[0].Value.Uint64()); i == 0 || v < least {
			least = v
		}
	}
	return least
}
