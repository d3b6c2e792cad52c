package main

import (
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
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
	client, redis   time.Duration // processor time
	commands        float64       // that Redis was given, also by scripts
	bytes           float64       // in and out
	stats           hybrid.Stats
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
	defer subject.close()
	load := newLoad(r)
	if l.settles {
		load.run(subject, o.warm, false)
	}
	if subject.await != nil {
		if err := subject.await(); err != nil {
			return s, err
		}
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
	s.client, s.redis = after.client-before.client, after.redis-before.redis
	s.commands, s.bytes = after.commands-before.commands-infoCommands, after.bytes-before.bytes
	s.stats = add(after.stats, before.stats, -1)
	return s, nil
}

// add returns those figures of a that a line tells of, and sign times those of b.
func add(a, b hybrid.Stats, sign int) (sum hybrid.Stats) {
	plus := func(a, b uint64) uint64 { return a + uint64(sign)*b }
	sum.Batches, sum.KeysSynced = plus(a.Batches, b.Batches), plus(a.KeysSynced, b.KeysSynced)
	sum.Heartbeats, sum.Failures = plus(a.Heartbeats, b.Heartbeats), plus(a.Failures, b.Failures)
	return sum
}

// account is what has been used up so far.
type account struct {
	client, redis   time.Duration
	commands, bytes float64
	stats           hybrid.Stats
}

// infoCommands is how many commands an account takes by itself.
const infoCommands = 2

func takeAccount(server *redistest.Server, s *subject) (a account, err error) {
	if a.client, err = processorTime(); err != nil {
		return a, err
	}
	if s.stats != nil {
		a.stats = s.stats()
	}
	read := func(fields map[string]string, name string) (f float64) {
		if err == nil {
			f, err = strconv.ParseFloat(strings.TrimSpace(fields[name]), 64)
		}
		return f
	}
	stats, err := server.Info("stats")
	if err != nil {
		return a, err
	}
	a.commands = read(stats, "total_commands_processed")
	a.bytes = read(stats, "total_net_input_bytes") + read(stats, "total_net_output_bytes")
	cpu, err := server.Info("cpu")
	if err != nil {
		return a, err
	}
	a.redis = time.Duration((read(cpu, "used_cpu_user") + read(cpu, "used_cpu_sys")) * float64(time.Second))
	return a, err
}
