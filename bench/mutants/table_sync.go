package main

// syncMutants break when what is sent.
var syncMutants = []mutant{
	{
		name:   "every-loss-is-accepted",
		breaks: "A node that has once been told of a loss tells Redis to accept whatever it has lost, from then on.",
		file:   "hybrid/replies.go",
		old:    `s.acked, s.accept, s.lost = s.seq, false, false`,
		new:    `s.acked, s.lost = s.seq, false`,
		by:     hybrid("TestLostTwice"),
	},
	{
		name:   "no-near-limit-trigger",
		breaks: "A key near its limit waits for its turn like all others.",
		file:   "local/link.go",
		old:    `near := unsynced > 0 && unsynced >= int64(c.urgentAt) && !c.is(inFlight)`,
		new:    `near := unsynced > 0 && unsynced < 0`,
		by:     hybrid("TestPromiseNearLimitTrigger"),
	},
	{
		name:   "denied-keys-are-not-refreshed",
		breaks: "A key that is only denied is never asked for again.",
		file:   "local/link.go",
		old:    `(unsynced > 0 || c.refused || c.staleLocked(now) || c.tellsLocked(now))`,
		new:    `(unsynced > 0 || c.tellsLocked(now))`,
		by:     hybrid("TestDeniedKeyIsRefreshed"),
	},
	{
		name:   "quarantine-for-ever",
		breaks: "A key that was put aside is never asked for again.",
		file:   "hybrid/core.go",
		old:    `k.Requeue() {`,
		new:    `k.Requeue() && k == nil {`,
		by:     sim(300),
	},
	{
		name:   "loss-unnoticed-by-the-heartbeat",
		breaks: "A node that has nothing to send does not hear of a loss.",
		file:   "hybrid/beat.go",
		old:    `if ev.beat.Seqs[i] < b.acked[i] &&`,
		new:    `if ev.beat.Seqs[i] < 0 &&`,
		by:     hybrid("TestPromiseLostData"),
	},
	{
		name:   "reseed-forgotten",
		breaks: "After a loss only the keys of the batch that met it are told anew.",
		file:   "hybrid/replies.go",
		old:    `if s.reseed && k.MarkRaise`,
		new:    `if !s.reseed && k.MarkRaise`,
		by:     hybrid("TestLostTwice"),
	},
	{
		name:   "hung-shards-hold-up-others",
		breaks: "A pipeline mixes shards that failed with others.",
		file:   "hybrid/pump.go",
		old: `case s.fails > 0, s.suspect:
		return doubtful`,
		new: "",
		by:  hybrid("TestShardsThatFailedTravelAlone"),
	},
	{
		name:   "too-many-pipelines",
		breaks: "The number of pipelines under way is not bounded.",
		file:   "hybrid/pump.go",
		old:    `c.slots--`,
		new:    "",
		by:     sim(300),
	},
	{
		name:   "batches-without-bound",
		breaks: "A batch takes all that is waiting.",
		file:   "hybrid/pump.go",
		old:    `k < len(*queue) && len(f.items) < c.cfg.maxBatch`,
		new:    `k < len(*queue)`,
		by:     hybrid("TestBatchesAreBounded"),
	},
}
