package main

// beatMutants break what heartbeats find out, and when they are sent.
var beatMutants = []mutant{
	{
		name:   "loss-of-one-shard-raises-no-alarm",
		breaks: "The other shards are looked at when their turn comes.",
		at:     "internal/reconcile Machine.noteLoss",
		old:    `c.beats.next = c.now`,
		new:    ``,
		by:     simulated("TestLossOfOneShardHasAllAsked"),
	},
	{
		name:   "lost-list-of-nodes-is-believed",
		breaks: "After a loss every node takes itself for one of the few that have entered themselves again.",
		at:     "internal/reconcile members.reported",
		old:    `case n >= m.count:`,
		new:    `case n >= 1:`,
		by:     simulated("TestLossDoesNotHideNodes"),
	},
	{
		name:   "broken-list-of-nodes-is-an-outage",
		breaks: "A limiter that has written nothing takes a broken list of nodes for an outage.",
		at:     "internal/reconcile Machine.reasonToAsk",
		old:    `case (c.beats.lastFailed || c.downAt != 0) && i`,
		new:    `case c.downAt != 0 && i`,
		by:     simulated("TestNodeListBrokenFromTheStart"),
	},
	{
		name:   "probes-in-step",
		breaks: "Nodes that lost Redis together probe together.",
		at:     "internal/reconcile Machine.scheduleProbe",
		old:    `c.beats.next = c.now + limit/20 + c.jitter(limit, 0, 0.95)`,
		new:    `c.beats.next = c.now + limit`,
		by:     simulated("TestProbesAreSpread"),
	},
	{
		name:   "back-off-lasts",
		breaks: "A short outage after a long one begins with the longest pause.",
		at:     "internal/reconcile Machine.assess",
		old:    `c.beats.probesFailed, c.outageAt = 0, 0`,
		new:    ``,
		by:     simulated("TestBackoffBeginsAnew"),
	},
	{
		name:   "answers-speak-for-failed-shards",
		breaks: "A server that answers for some shards is well for those for which it does not, too.",
		at:     "internal/reconcile Machine.failing",
		old:    `s.rounds.fails >= apartAfter*c.cfg.degradeAfter`,
		new:    `false`,
		by:     simulated("TestHalfOfAServerFails"),
	},
	{
		name:   "raised-with-what-is-under-way",
		breaks: "After a loss the units of the batch under way are restored, and then booked.",
		at:     "internal/algorithm LeakyBucket.KnownState",
		old:    `return r.Diff(f.Known, arith.Span{NS: now}), nil`,
		new:    `return r.Diff(f.booked(r, 1), arith.Span{NS: now}), nil`,
		by:     simulated("TestLossCountsNothingTwice"),
	},
	{
		name:   "raised-with-what-is-under-way-too",
		breaks: "The same for windows.",
		at:     "internal/algorithm Window.KnownState",
		old:    `buckets = w.units(func(b *bucket) int64 { return b.known })`,
		new:    `buckets = w.units(func(b *bucket) int64 { return b.known + b.sent })`,
		by:     simulated("TestLossCountsNothingTwice"),
	},
}
