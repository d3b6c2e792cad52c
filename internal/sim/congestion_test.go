package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// unheard returns how old what nodes know of the keys is, the oldest last: for how long those
// that are in use have not been reported.
func (s *sim) unheard() (list []time.Duration) {
	for _, n := range s.nodes {
		for _, k := range n.keys {
			if sh := s.oracle.nodes[n].shares[k]; sh.admitted > 0 {
				list = append(list, time.Duration(s.now-max(sh.answeredAt, simStart)))
			}
		}
	}
	slices.Sort(list)
	return list
}

// partOf returns the element below which a part of a sorted list is.
func partOf(list []time.Duration, part float64) time.Duration {
	return list[int(float64(len(list)-1)*part)]
}

// Eight nodes use three times as many keys as can be reported to Redis within a lag. Every
// key is reported in its turn, so that reports come late, all to the same degree. A hot
// key is near its limit: its reports go first, so that it is kept all the same.
func TestSaturation(t *testing.T) {
	const (
		nodes, slow = 8, 50
		lag         = time.Second
		over        = 3
		hotLimit    = 1000
		hotWindow   = 10 * time.Second
	)
	cold := limit.Must(limit.TokenBucket("cold", 1_000_000, time.Hour, 1_000_000))
	hot := limit.Must(limit.SlidingWindowBuckets("hot", hotLimit, hotWindow, 50))
	s, v := saturated(t, nodes, slow, cold, hot)
	perReport := (v.capacity.op + v.capacity.byte*100) * slow
	capacity := int(int64(lag) / perReport) // reports that it can take in a lag
	keys := over * capacity / nodes
	var admitted []int64
	var late []time.Duration
	var behind time.Duration // as Stats says
	begun, busy := s.now, v.busy
	most := func(d time.Duration) (most int) {
		from := 0
		for to := range admitted {
			for admitted[to]-admitted[from] >= int64(d) {
				from++
			}
			most = max(most, to-from+1)
		}
		return most
	}
	const hotAt, end = 8 * time.Second, 30 * time.Second // the flood is there before
	next := make([]int, nodes)
	for tick := 0; s.now-begun < int64(end); tick++ {
		s.run(4 * time.Millisecond)
		for i, n := range s.nodes {
			// Each key once in a lag.
			for want := int(int64(keys) * (s.now - begun) / int64(lag)); next[i] < want; next[i]++ {
				n.take(fmt.Sprint("key", next[i]%keys), cold, 1)
			}
			// Three times the limit, of all nodes together.
			if s.now-begun > int64(hotAt) && tick%(4*nodes/over) == 4*i/over && n.take("hot", hot, 1).Allowed {
				admitted = append(admitted, s.now)
			}
		}
		if tick%250 == 249 && s.now-begun > int64(hotAt) {
			late = append(late, partOf(s.unheard(), 0.99))
			for _, n := range s.nodes {
				behind = max(behind, time.Duration(n.stats.Behind.Load()))
			}
		}
	}
	worked := float64(v.busy-busy) / float64(s.now-begun)
	t.Logf("%d keys, capacity for %d reports in a lag; the server works %.0f %% of the time, in %d scripts; 99 %% of views are newer than %v; %d exchanges failed; the hot key: %d of %d, %d in all",
		nodes*keys, capacity, 100*worked, v.scripts, slices.Max(late), s.failures(), most(hotWindow), hotLimit, len(admitted))
	if n := s.failures(); n > 0 {
		t.Errorf("%d exchanges have failed", n)
	}
	s.stayedSynced()
	if worked < 0.9 {
		t.Errorf("the server works %.0f %% of the time, though there is more to do", 100*worked)
	}
	if got := slices.Max(late); got < 2*lag || got > 2*over*lag {
		t.Errorf("99 %% of views are newer than %v, want about %v on every node", got, over*lag)
	}
	if got := most(hotWindow); got > hotLimit*11/10 || len(admitted) < 2*hotLimit*97/100 {
		t.Errorf("%d units of the hot key in a window of %d, %d in all", got, hotLimit, len(admitted))
	}
	if behind < lag || behind > slices.Max(late) {
		t.Errorf("reports wait for %v by Stats, and views are up to %v old", behind, slices.Max(late))
	}
	s.run(2 * over * lag)
	s.reportedOnce()
	for _, n := range s.nodes {
		if d := n.stats.Behind.Load(); d != 0 {
			t.Errorf("%s is %v behind, with nothing to tell", n.name, time.Duration(d))
		}
	}
}
