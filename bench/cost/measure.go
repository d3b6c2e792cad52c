package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/remote/redistest"
)

// options is what the command line says.
type options struct {
	passes         int
	warm, measure  time.Duration
	rows, limiters *regexp.Regexp
	raw            *os.File
}

// sample is one measurement of one limiter.
type sample struct {
	checks        int
	wall          time.Duration
	client, redis time.Duration // processor time
	commands      float64       // that Redis was given, also by scripts
	bytes         float64       // in and out
	stats         hybrid.Stats
	p50, p99, top time.Duration // of a check; top: 999 of 1,000
}

// run measures all rows and writes a table.
func (o *options) run(out io.Writer) error {
	server, err := redistest.Launch(redistest.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintln(out, header)
	for _, r := range rows {
		if !o.rows.MatchString(r.String()) {
			continue
		}
		samples := map[string][]sample{}
		for range o.passes {
			for _, l := range limiters {
				if !l.does(r) || !o.limiters.MatchString(l.name) && l.name != "nothing" {
					continue
				}
				s, err := o.sample(server, r, l)
				if err != nil {
					return err
				}
				samples[l.name] = append(samples[l.name], s)
				if o.raw != nil {
					fmt.Fprintf(o.raw, "%v\t%s\t%+v\n", r, l.name, s)
				}
			}
		}
		table(out, r, samples)
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
	load.run(subject, o.warm, false)
	runtime.GC()
	before, err := takeAccount(server, subject)
	if err != nil {
		return s, err
	}
	from := time.Now()
	s.checks = load.run(subject, o.measure, true)
	s.wall = time.Since(from)
	after, err := takeAccount(server, subject)
	if err != nil {
		return s, err
	}
	s.client, s.redis = after.client-before.client, after.redis-before.redis
	s.commands, s.bytes = after.commands-before.commands-infoCommands, after.bytes-before.bytes
	s.stats.Batches, s.stats.KeysSynced = after.stats.Batches-before.stats.Batches, after.stats.KeysSynced-before.stats.KeysSynced
	s.stats.Failures, s.stats.StateChanges = after.stats.Failures-before.stats.Failures, after.stats.StateChanges-before.stats.StateChanges
	s.p50, s.p99, s.top = percentile(load.took, 500), percentile(load.took, 990), percentile(load.took, 999)
	return s, nil
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
