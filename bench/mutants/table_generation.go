package main

// generationMutants confuse what was counted before a reset with what was counted since.
var generationMutants = []mutant{
	{
		name:   "a-later-generation-replaces-all",
		breaks: "A node that knows of a reset erases what others have booked since, in a Redis that had lost it.",
		file:   "internal/redisstore/lua/lib.lua",
		old:    `local mine = st.gen == top or st.born >= top`,
		new:    `local mine = st.gen == top`,
		by:     hybrid("TestRealResetReturnsAfterALoss"),
	},
	{
		name:   "an-earlier-generation-is-ignored",
		breaks: "What a node knows that was booked since a reset is not restored if it has not heard of that.",
		file:   "internal/redisstore/lua/lib.lua",
		old:    `local theirs = gen == top or born >= top`,
		new:    `local theirs = gen == top`,
		by:     redisstore("TestMergeAcrossGenerations"),
	},
	{
		name:   "born-when-it-is-restored",
		breaks: "What a node restores after a loss passes for new, and so survives a reset.",
		file:   "hybrid/batch.go",
		old:    `Born: rep.Born, Level`,
		new:    `Born: 1<<53 - 1, Level`,
		by:     hybrid("TestRealResetOfAForeignKey"),
	},
	{
		name:   "what-was-set-has-no-ids",
		breaks: "A node that has set a window it did not know tells nobody again if Redis loses that.",
		file:   "internal/algorithm/window_clock.go",
		old: `w.moved = false
	}
}`,
		new: `w.sure, w.moved = false, true
	}
}`,
		by: tables("TestSetByAnUnknownClockIsToldAgain"),
	},
	{
		name:   "an-older-answer-is-mixed",
		breaks: "An answer from before a reset enters what a node knows since.",
		file:   "internal/table/sync.go",
		old:    `theirs := a.Gen >= c.gen() || a.Born >= c.gen()`,
		new:    `theirs := true`,
		by:     tables("TestAnswerOfAnotherGeneration"),
	},
	{
		name:   "reset-is-not-in-the-ledger",
		breaks: "A reset is not reported: a small rollback of Redis forgets it, and nobody notices.",
		file:   "internal/table/calls.go",
		old:    "\tc.newEra()\n\tc.mark(raising)\n",
		new:    "\tc.newEra()\n",
		by:     hybrid("TestPromiseResetRolledBack"),
	},
	{
		name:   "reset-without-a-witness",
		breaks: "A node that resets a key of which it has no counter does not remember it.",
		file:   "internal/table/calls.go",
		old: `t.with(key, rule, now, true, func(c *Counter) bool {
		return c.link() == nil`,
		new: `t.with(key, rule, now, a.Level != arith.Span{} || len(a.Buckets) > 0, func(c *Counter) bool {
		return c.link() == nil`,
		by: hybrid("TestRealResetOfAForeignKey"),
	},
	{
		name:   "witness-is-dropped",
		breaks: "A counter that only remembers a reset is forgotten like one that was never used.",
		file:   "internal/table/counter.go",
		old:    `case denies, c.told().witness > now:`,
		new:    `case denies:`,
		by:     tables("TestWitnessOfAResetStays"),
	},
	{
		name:   "a-reset-by-the-clock-alone",
		breaks: "A reset begins before what it clears if Redis' clock has been set back since.",
		file:   "internal/redisstore/lua/lib.lua",
		old:    `math.max(now, st.gen + 1, st.born + 1)`,
		new:    `math.max(now, st.gen + 1)`,
		by:     redisstore("TestBirths"),
	},
	{
		name:   "units-ahead-under-another-id",
		breaks: "A node whose clock was set back restores units under the ID of another bucket: Redis counts them twice.",
		file:   "internal/algorithm/buckets.go",
		old:    `w.moved = w.moved || b.ID > w.cur && b.Units > 0`,
		new:    ``,
		by:     tables("TestUnitsAheadAreNotReportedElsewhere"),
	},
	{
		name:   "a-reset-ahead-of-the-clock-clears-what-came-since",
		breaks: "Redis' clock is set back: a node that knows of an earlier reset erases what was booked since.",
		file:   "internal/redisstore/lua/lib.lua",
		old:    ` or math.max(top, born) > now`,
		new:    ``,
		by:     redisstore("TestMergeOfAResetBeforeTheClockWasSetBack"),
	},
	{
		name:   "an-answer-ahead-of-its-clock-is-older",
		breaks: "Redis' clock is set back: a node that knows of an earlier reset ignores what is booked since.",
		file:   "internal/table/sync.go",
		old:    ` || a.ServerNow/1000 < max(c.gen(), c.born)`,
		new:    ``,
		by:     tables("TestAnswerOfAnotherGeneration"),
	},
	{
		name:   "content-ahead-of-the-clock-is-newer",
		breaks: "The clock is set back by less than has passed since a reset: a node that knows of it erases what was booked since.",
		file:   "internal/redisstore/lua/lib.lua",
		old:    `or math.max(top, born) > now`,
		new:    `or top > now`,
		by:     redisstore("TestMergeOfAResetBeforeTheClockWasSetBack"),
	},
	{
		name:   "booked-earlier-taken-for-a-loss",
		breaks: "A batch is sent again: what Redis had booked by its own clock, in an older bucket, is restored in a newer one besides.",
		file:   "internal/algorithm/window_shared.go",
		old:    `w.bookedEarlier(least, told)`,
		new:    ``,
		by:     tables("TestUnitsBookedInAnOlderBucket"),
	},
}
