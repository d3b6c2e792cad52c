package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// options is what the command line says.
type options struct {
	length   time.Duration
	parallel int
	pattern  *regexp.Regexp
}

// run measures all rows, some at a time, and prints their lines in the order of the rows.
func (o *options) run(out io.Writer, rows []row) error {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !o.pattern.MatchString(r.String()) })
	if len(rows) == 0 {
		return fmt.Errorf("no row matches %q", o.pattern)
	}
	lines := make([]chan string, len(rows))
	var g errgroup.Group
	g.SetLimit(o.parallel + 1) // one starts the others
	for i := range lines {
		lines[i] = make(chan string, 1)
	}
	g.Go(func() error {
		for i, r := range rows {
			g.Go(func() error {
				defer close(lines[i])
				m, err := measure(r, o.length)
				if err != nil {
					return fmt.Errorf("%v: %w", r, err)
				}
				lines[i] <- m.lines()
				return nil
			})
		}
		return nil
	})
	for _, l := range lines {
		fmt.Fprint(out, <-l)
	}
	return g.Wait()
}

// measurement is a row and what has come of it.
type measurement struct {
	row
	traffic
	subjects []*subject
	late     []time.Duration // how much later than planned each check was, of those that do not wait for Redis; sorted
}

// measure puts all limiters of a row under its load at the same time.
func measure(r row, length time.Duration) (m *measurement, err error) {
	m = &measurement{row: r, traffic: newTraffic(r, length)}
	defer func() {
		for _, s := range m.subjects {
			s.close()
		}
	}()
	for _, l := range limiters {
		if !l.does(r) {
			continue
		}
		s, err := newSubject(l, r, m.counted)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		m.subjects = append(m.subjects, s)
	}
	for _, s := range m.subjects {
		err = errors.Join(err, s.begin())
	}
	m.play()
	for _, s := range m.subjects {
		err = errors.Join(err, s.end())
	}
	return m, err
}

// play makes the checks. Those limiters whose checks do not wait get each at the same instant,
// one after the other. The others have a goroutine each.
func (m *measurement) play() {
	begin := rig.Now()
	var g errgroup.Group
	at := func(a arrival) time.Duration {
		time.Sleep(begin + a.at - rig.Now())
		return rig.Now()
	}
	for _, s := range m.subjects {
		if s.waits {
			g.Go(func() error {
				for _, a := range m.arrivals {
					s.ask(m.names[a.key], a, at(a))
				}
				return nil
			})
		}
	}
	for _, a := range m.arrivals {
		now := at(a)
		m.late = append(m.late, now-begin-a.at)
		for _, s := range m.subjects {
			if !s.waits {
				s.ask(m.names[a.key], a, now)
			}
		}
	}
	_ = g.Wait() // they return none
	slices.Sort(m.late)
}
