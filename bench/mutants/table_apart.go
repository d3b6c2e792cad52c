package main

// apartMutants break how a flight is bounded, and what becomes of one that gets no answer.
var apartMutants = []mutant{
	{
		name:   "flights-of-any-cost",
		breaks: "A flight carries as many keys as it may, whatever they cost Redis.",
		file:   "hybrid/budget.go",
		old:    `return opCost + int64(arith.Of(r.Arith()).Kept+1)*bucketCost`,
		new:    `return opCost + 0*int64(arith.Of(r.Arith()).Kept)`,
		by:     hybrid("TestRealWideWindows"),
	},
	{
		name:   "time-outs-leave-the-budget",
		breaks: "A time-out does not make the next flights smaller.",
		file:   "hybrid/budget.go",
		old:    `b.ns = max(min(b.ns, cost)/2, b.least())`,
		new:    `b.ns = max(b.ns, b.least())`,
		by:     hybrid("TestBudget"),
	},
	{
		name:   "flight-sent-again-for-ever",
		breaks: "A flight that gets no answer is sent again, the same, for ever.",
		file:   "hybrid/shard.go",
		old:    `s.flight.unanswered >= maxUnanswered && len`,
		new:    `s.flight.unanswered < 0 && len`,
		by:     hybrid("TestFlightIsTakenApart"),
	},
	{
		name:   "fate-of-any-earlier-batch",
		breaks: "A batch whose fate is asked for counts as booked if any one since the last acknowledged was.",
		file:   "internal/redisstore/lua/batch.lua",
		old:    `elseif last > prev and last < seq and nonce == ARGV[5] then`,
		new:    `elseif last >= prev and last < seq then`,
		by:     redisstore("TestFateOfABatch"),
	},
	{
		name:   "booked-parts-told-again",
		breaks: "The parts of a flight that Redis has booked are told anew.",
		file:   "hybrid/shard.go",
		old:    `it.booked, it.forgiven = true, r.Forgiven[i]`,
		new:    `it.forgiven = r.Forgiven[i]`,
		by:     hybrid("TestFlightIsTakenApart"),
	},
	{
		name:   "failed-part-counts-as-booked",
		breaks: "A key that Redis could not use is taken for booked, because the rest of the flight was.",
		file:   "hybrid/shard.go",
		old:    `case booked && slices.Contains(r.Failed, i):`,
		new:    `case booked && slices.Contains(r.Failed, -1-i):`,
		by:     hybrid("TestBrokenKeyInAFlightTakenApart"),
	},
	{
		name:   "full-calls-with-what-is-urgent",
		breaks: "A call with an urgent report is filled up with those that can wait.",
		file:   "hybrid/pipeline.go",
		old:    `most /= urgentShare`,
		new:    `most /= 1`,
		by:     hybrid("TestUrgentBatchesAreSmall"),
	},
	{
		name:   "booked-under-an-earlier-number",
		breaks: "That a flight was booked under an earlier number is believed only of one whose fate was asked for.",
		file:   "hybrid/pipeline.go",
		old:    `f != nil && r.Fate == redisstore.FateEarlier {`,
		new:    `f == nil && r.Fate == redisstore.FateEarlier {`,
		by:     hybrid("TestBookedUnderAnEarlierNumber"),
	},
}
