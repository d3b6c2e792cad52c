package main

// refundMutants hand units back that have been handed back before.
var refundMutants = []mutant{
	{
		name:   "refund-again-after-a-loss",
		breaks: "A refund that may have been booked is sent again when Redis has lost the ledger.",
		at:     "internal/reconcile Machine.giveUpRefunds",
		old:    `if s.flight == nil || !s.flight.maybeBooked {`,
		new:    `if s.flight != nil || s.flight == nil {`,
		by:     hybrid("TestRealRefundAndLostLedger"),
	},
	{
		name:   "refund-again-after-two-losses",
		breaks: "A flight is accepted whatever the ledger says, though an earlier try may have been booked.",
		at:     "internal/reconcile shard.noteUnanswered",
		old:    `s.accept = false`,
		new:    `s.accept = s.accept`,
		by:     simulated("TestRefundAndTwoLosses"),
	},
	{
		name:   "refund-again-in-the-first-flight",
		breaks: "The first flight of a node hands back again what may have been handed back, because no ledger is no loss then.",
		at:     "internal/reconcile Machine.batch",
		old:    `if f.maybeBooked && s.acked == 0 {`,
		new:    `if f.maybeBooked && s.acked < 0 {`,
		by:     hybrid("TestRealRefundInTheFirstFlight"),
	},
	{
		name:   "a-generation-for-nothing",
		breaks: "A refund of a key that Redis has lost begins an empty generation, which clears what the fleet knows of it.",
		at:     "internal/redisstore/lua/long.lua",
		old:    `subtracted = (us > 0 or rem > 0) and not less(`,
		new:    `subtracted = not less(`,
		by:     redisstore("TestBatchHandsNothingBack"),
	},
	{
		name:   "every-failure-may-have-run",
		breaks: "A refund is given up although Redis has refused the call.",
		at:     "internal/redisstore MayHaveRun",
		old:    `if err == nil || Answered(err) {`,
		new:    `if err == nil || Answered(nil) {`,
		by:     redisstore("TestMayHaveRun"),
	},
	{
		name:   "refunds-of-before-a-forgotten-reset",
		breaks: "After a loss Redis takes off what is handed back of units from before a reset.",
		at:     "internal/redisstore/lua/long.lua",
		old:    `st.gen, st.reset = top, top`,
		new:    `st.gen = top`,
		by:     redisstore("TestBatchHandsBackAfterReset"),
	},
}
