package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// span is a stretch of time, from inclusive, to exclusive.
type span struct{ from, to time.Duration }

func (s span) length() time.Duration { return s.to - s.from }

func (s span) touches(others []span) bool {
	for _, o := range others {
		if s.from < o.to && o.from < s.to {
			return true
		}
	}
	return false
}

// Shares of the run's length.
const shareHealthy, shareOutage = 0.45, 0.25

// show is one run: load, faults, and what is seen of it.
type show struct {
	config
	world   *world
	fleet   *fleet
	traffic *traffic
	out     io.Writer

	start, end time.Duration
	begun      [phases + 1]time.Duration // of each phase; then the end
	commands   [phases + 1]int64         // sent until then
	down       []span                    // when Redis was away
	atLoss     []int64                   // see fleet.acked; nil unless Redis lost its data
	lossAt     time.Duration             // when it came back empty
	line       line
}

// scene is something that happens at a time.
type scene struct {
	at time.Duration
	do func() error
}

// script returns what happens, in order.
func (s *show) script() []scene {
	from, length := share(s.length, shareHealthy), share(s.length, shareOutage)
	scenes := []scene{{from, func() error { s.enter(outage); return nil }}}
	for _, t := range s.world.faults() {
		scenes = append(scenes, scene{from + share(length, t.at), func() error { return s.turn(t.fault) }})
	}
	return append(scenes,
		scene{from + length, func() error { s.enter(recovered); return s.turn(none) }},
		scene{s.length, func() error { return nil }})
}

func share(d time.Duration, x float64) time.Duration { return time.Duration(float64(d) * x) }

// play offers load and lets the script happen. It returns when the load has
// ended.
func (s *show) play(ctx context.Context) error {
	for _, n := range s.fleet.nodes {
		n.prepare(s.traffic)
	}
	s.header()
	s.start = now()
	s.enter(healthy)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, n := range s.fleet.nodes {
		wg.Go(func() { n.load(s.traffic, s.start, stop) })
	}
	err := s.direct(ctx)
	close(stop)
	wg.Wait()
	s.end = now()
	s.mark(phases)
	return err
}

// direct follows the script, with a line every second.
func (s *show) direct(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for _, next := range s.script() {
		timer := time.NewTimer(s.start + next.at - now())
		defer timer.Stop()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-second.C:
				s.tell()
			case <-timer.C:
				waiting = false
			}
		}
		if err := next.do(); err != nil {
			return err
		}
	}
	return nil
}

func (s *show) enter(p phase) {
	s.mark(p)
	for _, n := range s.fleet.nodes {
		n.enter(p)
	}
}

func (s *show) mark(p phase) {
	s.begun[p], s.commands[p] = now(), s.sent()
}

// sent returns the commands that the nodes have sent so far.
func (s *show) sent() (sum int64) {
	for _, n := range s.fleet.nodes {
		sum += n.wire.commands.Load()
	}
	return sum
}

// turn changes what is wrong with Redis.
func (s *show) turn(next fault) error {
	was := s.world.fault
	fmt.Fprintf(s.out, "%5.1fs  -- %v --\n", (now() - s.start).Seconds(), next)
	if was == killed {
		s.atLoss, s.lossAt = s.fleet.acked(), now()
	}
	switch {
	case was == none && next != none:
		s.down = append(s.down, span{now(), 1 << 62})
	case was != none && next == none:
		s.down[len(s.down)-1].to = now()
	}
	return s.world.become(next)
}

// phase returns the one that is on.
func (s *show) phase() phase {
	p := healthy
	for p+1 < phases && s.begun[p+1] > 0 {
		p++
	}
	return p
}
