package main

// onceMutants break that every admitted unit is booked exactly once.
var onceMutants = []mutant{
	{
		name:   "resend-under-a-new-number",
		breaks: "A batch that is sent again gets another number and another nonce, and Redis cannot tell that it knows it.",
		at:     "internal/reconcile Machine.batch",
		old:    `c.stats.Resent.Add(1)`,
		new: `c.stats.Resent.Add(1)
		s.seq, f.nonce = s.seq+1, c.ids.Nonce() // by either Redis would know it`,
		by: sim(300),
	},
	{
		name:   "delta-applied-twice",
		breaks: "What a leaky bucket has sent stays pending, and is sent once more.",
		at:     "internal/algorithm LeakyBucket.Collect",
		old: `sentDebt: a.sentDebt + a.debt, hidden: a.hidden, capped: a.capped, limit: a.limit})
	f.Pend = Run{}`,
		new: `sentDebt: a.sentDebt + a.debt, hidden: a.hidden, capped: a.capped, limit: a.limit})`,
		by:  sim(300),
	},
	{
		name:   "pending-cleared-before-the-ack",
		breaks: "Units count as acknowledged as soon as they are sent.",
		at:     "internal/counter Counter.Report",
		old:    `+backSlack, rep)`,
		new: `+backSlack, rep)
	c.state().DropSent(c.rule(), modeMultiplier(c.mode()))`,
		by: sim(300),
	},
	{
		name:   "failed-batch-is-forgotten",
		breaks: "A batch whose fate is unknown is not sent again.",
		at:     "internal/reconcile Machine.failing",
		old:    `s.retry = c.now + c.jitter(`,
		new: `s.flight = nil
		s.retry = c.now + c.jitter(`,
		by: sim(300),
	},
	{
		name:   "expired-counted-as-acked",
		breaks: "Units that outlived their window in flight are not counted as expired.",
		at:     "internal/counter Counter.settleLocked",
		old:    `c.expiredLocked(s.Expired)`,
		new:    `c.expiredLocked(0 * s.Expired)`,
		by:     counters("TestSettleCountsWhatItExpires"),
	},
	{
		name:   "refused-units-are-dropped",
		breaks: "Units of a key that Redis cannot use are gone instead of pending again.",
		at:     "internal/algorithm LeakyBucket.GiveBack",
		old:    "\tf.Pend = a.sent.join(r, f.Pend)\n",
		new:    "",
		by:     sim(300),
	},
	{
		name:   "forgotten-with-pending-units",
		breaks: "A counter that has unreported units may be forgotten.",
		at:     "internal/counter Counter.pinnedLocked",
		old:    `case !c.hasReportLocked(now):`,
		new:    `case !c.is(restoring):`,
		by:     sim(300),
	},
	{
		name:   "client-sends-again",
		breaks: "go-redis sends a script again by itself, after its deadline.",
		at:     "internal/redisstore once.NoRetry",
		old:    `NoRetry() bool { return true }`,
		new:    `NoRetry() bool { return false }`,
		by:     redisstore("TestLostOnTheWire"),
	},
	{
		name:   "same-name-after-a-restart",
		breaks: "A process that starts anew goes by the name of another.",
		at:     "hybrid systemIdentities",
		old:    `return hex.EncodeToString(b[:])`,
		new:    `return hex.EncodeToString(make([]byte, 12))`,
		by:     hybrid("TestLiveNodes"),
	},
}
