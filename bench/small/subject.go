package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// subject is a limiter that runs, and what has come of it.
type subject struct {
	limiter
	fleet  *fleet.Fleet
	server *redistest.Server // nil: it has none
	watch  *watcher          // nil: no key is watched

	log   fleet.Admitted
	redis fleet.Usage    // in the time of the load
	stats inside.Figures // likewise
	wall  time.Duration  // how long that was
	began time.Duration
}

// newSubject opens a limiter, with a server of its own if it needs one. It returns when the
// nodes know each other.
func newSubject(l limiter, r row, keys int) (s *subject, err error) {
	s = &subject{limiter: l, log: make(fleet.Admitted, keys)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	addr, rule := "", r.rule()
	if l.redis {
		if s.server, err = redistest.Launch(redistest.Options{}); err != nil {
			return s, err
		}
		addr = s.server.Addr()
	}
	if s.fleet, err = l.open(addr, r, rule); err != nil {
		return s, err
	}
	if l.redis && len(s.fleet.Limiters) > 0 && r.watched() > 0 {
		if s.watch, err = newWatcher(rule, s.fleet.Limiters); err != nil {
			return s, err
		}
	}
	for _, ask := range s.fleet.Ask {
		ask("the first check connects")
	}
	return s, s.fleet.Await()
}

func (s *subject) close() {
	if s.watch != nil {
		s.watch.close()
	}
	if s.fleet != nil {
		s.fleet.Close()
	}
	if s.server != nil {
		s.server.Close()
	}
}

// begin starts a measurement, which end ends.
func (s *subject) begin() (err error) {
	if s.server != nil {
		s.redis, err = fleet.UsageOf(s.server)
	}
	s.stats, s.began = s.fleet.Stats(), rig.Now()
	if s.watch != nil {
		s.watch.start()
	}
	return err
}

func (s *subject) end() (err error) {
	s.wall, s.stats = rig.Now()-s.began, fleet.Add(s.fleet.Stats(), s.stats, -1)
	if s.watch != nil {
		s.watch.stop()
	}
	if s.server != nil {
		var after fleet.Usage
		after, err = fleet.UsageOf(s.server)
		s.redis = after.Since(s.redis)
	}
	return err
}

// ask asks a node of the fleet for a key. One process gets the checks of all nodes.
func (s *subject) ask(key string, a arrival, at time.Duration) {
	node := a.node % len(s.fleet.Ask)
	if !s.fleet.Ask[node](key) {
		return
	}
	switch {
	case a.key < len(s.log):
		s.log[a.key] = append(s.log[a.key], at)
	case s.watch != nil:
		s.watch.admitted(key, node, at)
	}
}
