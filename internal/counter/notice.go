package counter

import (
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A notice is a hint from another node: the key is used up until some time. It only refuses,
// and only until the authority has answered: nothing else leans on it. So a notice that is lost
// costs accuracy alone, and one that is wrong refuses for a lag at most after a check.

// NoticeID names a counter in notices.
type NoticeID [16]byte

// Notice is what another node has said of a key.
type Notice struct {
	Shape uint32 // of the rule, see [arith.Rule.ShapeHash]
	Limit int64  // rules of that shape are bound whose limit is no higher
	Gen   int64  // generation of the authority's state, as in [Answer]
	Now   int64  // the authority's time at which that was so, ns
	Until int64  // the authority's time from which one more unit fits, ns; 0: there is room now
}

// heardNotice is a notice that a counter obeys.
type heardNotice struct {
	Notice
	heard int64 // our time, ns
	until int64 // Until by our clock, ns
}

// noticeSet keeps notices by the names of counters, so that a counter that is made later obeys
// them. It is bounded: notices are anybody's input who may publish.
type noticeSet struct {
	name  func(shard int, rule *limit.Rule, key string, hashed bool) NoticeID // nil: there are no notices
	most  int
	count atomic.Int64 // of byID, so that most new counters need not look

	mu   sync.Mutex
	byID map[NoticeID]keptNotice
}

type keptNotice struct {
	Notice
	heard int64 // our time, ns
}

// dropOne drops any notice but one. Which is random, so that forged ones, whose times may be
// anything, do not drive out the others for good.
func (s *noticeSet) dropOne(but NoticeID) {
	for id := range s.byID {
		if id != but {
			delete(s.byID, id)
			return
		}
	}
}
