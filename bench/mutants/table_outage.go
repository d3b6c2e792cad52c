package main

// outageMutants break what happens while Redis is away, and when it comes back.
var outageMutants = []mutant{
	{
		name:   "weight-1-in-fair-share",
		breaks: "Cut off, every node admits the whole limit.",
		file:   "hybrid/options.go",
		old: `return n
}

// Options`,
		new: `return min(n, 1)
}

// Options`,
		by: sim(300),
	},
	{
		name:   "weight-lifted-before-the-answer",
		breaks: "Back from an outage, what was admitted in it weighs 1 before Redis knows it.",
		file:   "internal/table/counter.go",
		old:    `if is == 1 && was > 1 && c.unsyncedUnits() > 0 {`,
		new:    `if is == 1 && was > 1 && c.unsyncedUnits() < 0 {`,
		by:     tables("TestWeightLastsUntilTheAnswer"),
	},
	{
		name:   "weight-applies-late",
		breaks: "The units of the last interval before an outage weigh 1 in it.",
		file:   "internal/table/funnel.go",
		old:    `case was == 1 && is > 1 && units > 0:`,
		new:    `case was == 1 && is > 1 && units < 0:`,
		by:     tables("TestFairShareWeighsUnits"),
	},
	{
		name:   "refund-of-a-capped-weight",
		breaks: "A node that asks for more than its share in an outage, and hands most of it back, is admitted the whole limit.",
		file:   "internal/table/funnel.go",
		old:    `spared = f.under().spared`,
		new:    `spared = 0`,
		by:     tables("TestRefundOfACappedWeight"),
	},
	{
		name:   "nodes-fall-after-an-outage",
		breaks: "The first node to return takes itself for the only one.",
		file:   "hybrid/replies.go",
		old:    `if c.now < c.floorTo {`,
		new:    `if c.now < 0 {`,
		by:     hybrid("TestShareSurvivesASecondOutage"),
	},
	{
		name:   "never-degraded",
		breaks: "A node goes on as if synced, however long Redis is away.",
		file:   "hybrid/server.go",
		old:    `c.setHealth(v, down)`,
		new:    `c.setHealth(v, up)`,
		by:     hybrid("TestPromiseOutage"),
	},
	{
		name:   "never-back",
		breaks: "A node stays degraded when Redis is back.",
		file:   "hybrid/server.go",
		old:    `c.setHealth(v, trying)`,
		new:    ``,
		by:     sim(300),
	},
	{
		name:   "one-dead-shard-takes-all-down",
		breaks: "On a Cluster the loss of one master cuts off all shards.",
		file:   "hybrid/server.go",
		old:    `c.setHealth(v, down)`,
		new: `for _, v := range c.servers {
			c.setHealth(v, down)
		}`,
		by: sim(300),
	},
	{
		name:   "backlog-is-forgotten",
		breaks: "What waited during an outage is dropped when it ends.",
		file:   "hybrid/server.go",
		old:    `s.backlog = append(s.backlog, s.normal...)`,
		new:    ``,
		by:     sim(300),
	},
	{
		name:   "urgent-queue-is-forgotten",
		breaks: "What waited urgently when Redis went away is dropped.",
		file:   "hybrid/server.go",
		old:    `s.normal, s.normalAt, s.retry, s.missed = nil, 0, 0, true`,
		new: `s.normal, s.normalAt, s.retry, s.missed = nil, 0, 0, true
		s.urgent, s.urgentAt = nil, 0`,
		by: hybrid("TestUrgentAfterAnOutage"),
	},
	{
		name:   "one-stall-is-many-failures",
		breaks: "A server that stalls once is an outage, because all exchanges under way fail together.",
		file:   "hybrid/server.go",
		old:    `if began >= r.at || r.fails == 0 {`,
		new:    `if began >= 0 {`,
		by:     hybrid("TestOneStallIsOneRound"),
	},
	{
		name:   "probes-without-back-off",
		breaks: "A Redis that is away is asked at the shortest pause for ever.",
		file:   "hybrid/machine.go",
		old:    `c.backoff++`,
		new:    "",
		by:     hybrid("TestProbesBackOff"),
	},
	{
		name:   "returning-all-at-once",
		breaks: "A backlog is told without pauses.",
		file:   "hybrid/replies.go",
		old:    `p.load.paceAt = c.now + c.cfg.resyncPaceMin + c.jitter(c.cfg.resyncRange, 0, 1)`,
		new:    ``,
		by:     hybrid("TestBacklogIsPaced"),
	},
	{
		name:   "misconfiguration-probed-fast",
		breaks: "A wrong password is tried as often as a server that is away.",
		file:   "hybrid/machine.go",
		old:    `if class != redisstore.ClassMisconfigured {`,
		new:    `if class >= 0 {`,
		by:     hybrid("TestMisconfiguredProbesSlowly"),
	},
	{
		name:   "heartbeats-excuse-batches",
		breaks: "A heartbeat that is answered makes up for batches that are not.",
		file:   "hybrid/server.go",
		old:    `if !slices.ContainsFunc(v.shards, func(i int) bool { return c.shards[i].flight != nil }) {`,
		new:    `if len(v.shards) > 0 {`,
		by:     hybrid("TestBatchesThatAreNeverAnswered"),
	},
}
