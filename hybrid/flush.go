package hybrid

// flush is a request to reconcile everything that is waiting now.
type flush struct {
	id    uint64
	marks map[int]*flushMark // by shard: those that are not done
}

// flushMark is how far the queues of a shard must be emptied for a flush.
type flushMark struct {
	normal, urgent int64   // the shard's takenNormal and takenUrgent when the last counter has left
	boarded        bool    // they have been reached
	flight         *flight // the flight that carried the last counter; nil: it had nothing to report
}
