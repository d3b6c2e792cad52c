package hybrid

// flush is a request to reconcile all that is waiting now.
type flush struct {
	id    uint64
	marks map[int]*flushMark
}

type flushMark struct {
	normal, urgent int64   // taken counts that cover the request
	boarded        bool    // they have been reached
	flight         *flight // and this carries the last of it
}
