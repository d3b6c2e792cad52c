package main

// slowMutants break how a flight is bounded, and what becomes of one that gets no answer.
var slowMutants = []mutant{
	{
		name:   "flights-of-any-cost",
		breaks: "A flight carries as many keys as it may, whatever they cost Redis.",
		at:     "internal/reconcile cost",
		old:    `return opCost + int64(arith.Of(r).Kept+1)*bucketCost`,
		new:    `return opCost + 0*int64(arith.Of(r).Kept)`,
		by:     hybrid("TestRealWideWindows"),
	},
	{
		name:   "time-outs-leave-the-budget",
		breaks: "A time-out does not make the next flights smaller.",
		at:     "internal/reconcile budget.timedOut",
		old:    `b.ns = max(min(b.ns, cost)/2, b.least())`,
		new:    `b.ns = max(b.ns, b.least())`,
		by:     reconcile("TestBudget"),
	},
	{
		name:   "flights-wait-no-longer",
		breaks: "A flight that had no answer in time is sent again with the same deadline, for ever.",
		at:     "internal/reconcile Machine.send",
		old:    `max(late, f.late-1)`,
		new:    `max(late, 0*f.late)`,
		by:     simulated("TestBatchesThatAreNeverAnswered"),
	},
	{
		name:   "a-slow-flight-is-an-outage",
		breaks: "Two flights that had no answer in time are an outage, although heartbeats are answered.",
		at:     "internal/reconcile Machine.failed",
		old:    `if v.health == up && !c.beats.lastFailed && `,
		new:    `if v.health == down && !c.beats.lastFailed && `,
		by:     simulated("TestBatchesThatAreAnsweredLate"),
	},
	{
		name:   "flights-without-an-answer-are-no-outage",
		breaks: "A server that answers heartbeats, and no flight even within the longest deadline, counts as reachable.",
		at:     "internal/reconcile Machine.failed",
		old:    `if spent || v.rounds`,
		new:    `if !spent && v.rounds`,
		by:     simulated("TestBatchesThatAreNeverAnswered"),
	},
	{
		name:   "a-slow-shard-is-no-outage",
		breaks: "A shard whose flight had no answer within the longest deadline is used until eight rounds have failed.",
		at:     "internal/reconcile Machine.failing",
		old:    `if (a.spent || s.rounds`,
		new:    `if (a.list || s.rounds`,
		by:     reconcile("TestSpentFlightIsAnOutageOfItsShard"),
	},
	{
		name:   "full-calls-with-what-is-urgent",
		breaks: "A call with an urgent report is filled up with those that can wait.",
		at:     "internal/reconcile Machine.takeFromQueues",
		old:    `most /= urgentShare`,
		new:    `most /= 1`,
		by:     simulated("TestUrgentBatchesAreSmall"),
	},
}
