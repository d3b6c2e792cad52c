package main

import (
	"fmt"
	"io"
	"regexp"
	"runtime"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// options is what the command line says.
type options struct {
	passes        int
	warm, measure time.Duration
	pattern       *regexp.Regexp
}

// sample is one measurement of one limiter.
type sample struct {
	checks, refused int
	wall            time.Duration
	client          time.Duration // processor time
	redis           fleet.Usage
	stats           inside.Figures
	took            []time.Duration // each check
}

// run measures all rows, and prints a line for each measurement.
func (o *options) run(out io.Writer) error {
	server, err := redistest.Launch(redistest.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	for _, r := range rows {
		for range o.passes {
			for _, l := range limiters {
				if !l.does(r) || !o.pattern.MatchString(l.name+"/"+r.String()) {
					continue
				}
				s, err := o.sample(server, r, l)
				if err != nil {
					return fmt.Errorf("%s/%v: %w", l.name, r, err)
				}
				fmt.Fprintln(out, s.line(r, l))
			}
		}
	}
	return nil
}

// sample measures a limiter once, on a Redis without data.
func (o *options) sample(server *redistest.Server, r row, l limiter) (s sample, err error) {
	if _, err := server.Do("FLUSHALL"); err != nil {
		return s, err
	}
	subject, err := l.open(server.Addr(), r, r.rule(l.window))
	if err != nil {
		return s, err
	}
	defer subject.Close()
	load := newLoad(r)
	if l.settles {
		load.run(subject, o.warm, false)
	}
	if err := subject.Await(); err != nil {
		return s, err
	}
	runtime.GC()
	before, err := takeAccount(server, subject)
	if err != nil {
		return s, err
	}
	from := time.Now()
	s.checks = load.run(subject, o.measure, true)
	s.wall, s.refused, s.took = time.Since(from), load.refused, load.took
	after, err := takeAccount(server, subject)
	if err != nil {
		return s, err
	}
	s.client, s.redis = after.client-before.client, after.redis.Since(before.redis)
	s.stats = fleet.Add(after.stats, before.stats, -1)
	return s, nil
}

// account is what has been used up so far.
type account struct {
	client time.Duration
	redis  fleet.Usage
	stats  inside.Figures
}

func takeAccount(server *redistest.Server, s *fleet.Fleet) (a account, err error) {
	if a.client, err = processorTime(); err != nil {
		return a, err
	}
	a.stats = s.Stats()
	a.redis, err = fleet.UsageOf(server)
	return a, err
}
