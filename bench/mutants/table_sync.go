package main

// syncMutants break when what is sent.
var syncMutants = []mutant{
	{
		name:   "every-loss-is-accepted",
		breaks: "A node that has once been told of a loss tells Redis to accept whatever it has lost, from then on.",
		file:   "internal/reconcile/answer.go",
		old:    `s.acked, s.accept, s.lost = s.seq, false, false`,
		new:    `s.acked, s.lost = s.seq, false`,
		by:     reconcile("TestLostTwice"),
	},
	{
		name:   "no-near-limit-trigger",
		breaks: "A key near its limit waits for its turn like all others.",
		file:   "internal/counter/queue.go",
		old:    `near := unsynced > 0 && unsynced >= int64(c.urgentAt) && !c.is(inFlight)`,
		new:    `near := unsynced > 0 && unsynced < 0`,
		by:     reconcile("TestPromiseNearLimitTrigger"),
	},
	{
		name:   "denied-keys-are-not-refreshed",
		breaks: "A key that is only denied is never asked for again.",
		file:   "internal/counter/queue.go",
		old: `if !c.is(inNormal) {
		wake = c`,
		new: `if unsynced > 0 && !c.is(inNormal) {
		wake = c`,
		by: hybrid("TestDeniedKeyIsRefreshed"),
	},
	{
		name:   "refused-when-new-and-then-forgotten",
		breaks: "A key that is refused while its view is new is asked for only by a check that finds the view a lag old.",
		file:   "internal/counter/queue.go",
		old: `if !c.is(inNormal) {
		wake = c`,
		new: `if !c.is(inNormal) && (unsynced > 0 || c.staleLocked(c.last)) {
		wake = c`,
		by: reconcile("TestSimAgeOfBeliefs"),
	},
	{
		name:   "collected-too-soon-to-be-old",
		breaks: "A view that will be a lag old before the next collection is left for that.",
		file:   "internal/counter/sync.go",
		old:    `!c.staleLocked(now+int64(c.link().pace.Interval))`,
		new:    `!c.staleLocked(now)`,
		by:     reconcile("TestSimAgeOfBeliefs"),
	},
	{
		name:   "quarantine-for-ever",
		breaks: "A key that was put aside is never asked for again.",
		file:   "internal/reconcile/machine.go",
		old:    `k.Requeue() {`,
		new:    `k.Requeue() && k == nil {`,
		by:     sim(300),
	},
	{
		name:   "loss-unnoticed-by-the-heartbeat",
		breaks: "A node that has nothing to send does not hear of a loss.",
		file:   "internal/reconcile/heartbeat.go",
		old:    `if ev.Beat.Seqs[i] < b.acked[i] &&`,
		new:    `if ev.Beat.Seqs[i] < 0 &&`,
		by:     reconcile("TestPromiseLostData"),
	},
	{
		name:   "reseed-forgotten",
		breaks: "After a loss only the keys of the batch that met it are told anew.",
		file:   "internal/reconcile/shard.go",
		old:    `if s.reseed && k.MarkRaise`,
		new:    `if !s.reseed && k.MarkRaise`,
		by:     reconcile("TestLostTwice"),
	},
	{
		name:   "one-server-for-all",
		breaks: "All masters of a Cluster are taken for one server.",
		file:   "internal/reconcile/server.go",
		old:    `return v.name == addrs[i] })`,
		new:    `return true })`,
		by:     reconcile("TestPipelinesAreForOneServer"),
	},
	{
		name:   "reports-when-it-suits",
		breaks: "A unit is reported ten lags after its key was last heard of.",
		file:   "internal/counter/sync.go",
		old:    `return c.freshAt + c.askAfterLocked()`,
		new:    `return c.freshAt + 10*c.askAfterLocked()`,
		by:     sim(300),
	},
	{
		name:   "first-touch-waits",
		breaks: "A key that is new to a node is asked for when its view would be a lag old, not with the next tick.",
		file:   "internal/counter/sync.go",
		old:    `if c.born == noAnswer || c.is(raising|outdated)`,
		new:    `if c.is(raising | outdated)`,
		by:     hybrid("TestFirstTouch"),
	},
	{
		name:   "too-many-pipelines",
		breaks: "The number of pipelines under way is not bounded.",
		file:   "internal/reconcile/pipeline.go",
		old:    `v.load.slots--`,
		new:    ``,
		by:     sim(300),
	},
	{
		name:   "batches-without-bound",
		breaks: "A batch takes all that is waiting.",
		file:   "internal/reconcile/pipeline.go",
		old:    `k < len(*queue) && len(f.items) < most`,
		new:    `k < len(*queue)`,
		by:     reconcile("TestBatchesAreBounded"),
	},
}
