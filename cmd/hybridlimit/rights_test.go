package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// sent runs something and returns which commands it has sent, within scripts too, without
// those that any client sends to connect.
func sent(t *testing.T, s *redistest.Server, run func()) (list []string) {
	t.Helper()
	do(t, s, "CONFIG", "RESETSTAT")
	run()
	stats, err := s.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stats {
		switch name = strings.TrimPrefix(name, "cmdstat_"); name {
		case "hello", "auth", "client|setinfo", "config|resetstat", "info":
		default:
			list = append(list, name)
		}
	}
	return list
}

// everyRule has one rule of each algorithm.
var everyRule = []*limit.Rule{
	limit.Must(limit.TokenBucket("bucket", 5, time.Hour, 5)), limit.Must(limit.SlidingWindow("window", 5, time.Hour)),
	limit.Must(limit.FixedWindow("fixed", 5, time.Hour)), limit.Must(limit.SlidingLog("log", 5, time.Hour)),
}

// callRemote makes every call of package remote.
func callRemote(t *testing.T, s *redistest.Server) {
	ctx := t.Context()
	lim := limit.Must(remote.New(client(t, s), remote.Options{CommandTimeout: time.Minute}))
	for _, rule := range everyRule {
		for range 2 { // the second time the scripts are there
			_, err := lim.Take(ctx, "k", rule, 2)
			_, _, err2 := lim.TakeAtMost(ctx, "k", rule, 9)
			_, err3 := lim.Peek(ctx, "k", rule)
			_, err4 := lim.TakeAll(ctx, limit.Check{Key: "a", Rule: rule}, limit.Check{Key: "b", Rule: rule})
			_, err5 := lim.Refund(ctx, "k", rule, 1)
			for _, err := range []error{err, err2, err3, err4, err5, lim.Wait(ctx, "w", rule), lim.Set(ctx, "k", rule, 3), lim.Reset(ctx, "k", rule)} {
				if err != nil {
					t.Fatal(rule, err)
				}
			}
		}
	}
	r, err := lim.Reserve(ctx, "r", everyRule[0])
	if err == nil {
		err = r.Cancel(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// callHybrid makes the calls of package hybrid that reach Redis, on two nodes, which send each
// other notices.
func callHybrid(t *testing.T, s *redistest.Server) {
	ctx := t.Context()
	var nodes []*hybrid.Limiter
	for range 2 {
		lim := limit.Must(hybrid.New(client(t, s), hybrid.Options{CommandTimeout: 10 * time.Second}))
		defer lim.Shutdown(ctx)
		nodes = append(nodes, lim)
		await(t, "a node to be synchronised", func() bool { return lim.State().Mode == hybrid.Synced })
	}
	for _, rule := range everyRule[:3] {
		for _, lim := range nodes {
			lim.Take("k", rule, 2)
			err := lim.Flush(ctx)
			lim.Take("k", rule, 9)
			lim.TakeAtMost("k", rule, 9)
			lim.Refund("k", rule, 1)
			for _, err := range []error{err, lim.Flush(ctx), lim.Preload(ctx, []string{"k", "p"}, rule), lim.Set(ctx, "k", rule, 3), lim.Reset(ctx, "k", rule)} {
				if err != nil {
					t.Fatal(rule, err)
				}
			}
		}
	}
}

// Doctor and docs/redis.md name every command that is really sent, by a limiter and by the
// command line, and none else.
func TestDoctorKnowsWhatIsSent(t *testing.T) {
	s := redistest.Start(t, healthy...)
	limiters := append(sent(t, s, func() { callRemote(t, s) }), sent(t, s, func() { callHybrid(t, s) })...)
	slices.Sort(limiters)
	limiters = slices.Compact(limiters)
	rights := []string{"~hl:*", "&hl:*"}
	for _, c := range limiters {
		rights = append(rights, "+"+c)
	}
	documented := documentedRights(t)
	if slices.Sort(rights); !slices.Equal(rights, slices.Sorted(slices.Values(documented))) {
		t.Errorf("limiters send what needs\n%v, docs/redis.md says\n%v", rights, documented)
	}
	do(t, s, append([]string{"ACL", "SETUSER", "looks", "on", ">password", "+scan", "+dbsize"}, documented...)...)
	flags := []string{"--redis=redis://looks:password@" + s.Addr(), "--timeout=1m"}
	url := flags[0]
	for _, args := range [][]string{{"set", "k", "990", slowly}, {"peek", "k", slowly}, {"top", slowly}, {"quarantined"}, {"nodes"}, {"watch", "--count=1"}, {"watch", "k", slowly, "--count=1"}, {"reset", "k", slowly}} {
		for _, c := range sent(t, s, func() { cli(t, with(flags, args...)...).want(t, exitOK) }) {
			do(t, s, "ACL", "SETUSER", "looks", "-"+c)
			o := cli(t, with(flags, args...)...)
			ids, report, _ := examine(t, append(patient, url)...)
			do(t, s, "ACL", "SETUSER", "looks", "+"+c)
			if all := o.out + o.err; strings.Contains(all, "ERR ERR") {
				t.Errorf("%v without %s prints %s", args, c, all)
			}
			if o.code == exitRedis && (len(ids) != 1 || !slices.Contains(strings.Fields(report.Findings[0].Fix[0]), "+"+c)) {
				t.Errorf("%v fails without %s, and doctor says %+v", args, c, report.Findings)
			}
			for _, f := range report.Findings {
				if strings.Contains(f.What, "ERR ERR") {
					t.Errorf("without %s doctor prints %s", c, f.What)
				}
			}
		}
	}
	// Another database is selected first.
	if ids, report, _ := examine(t, append(patient, url+"/1")...); !slices.Equal(ids, []string{"permission"}) || !strings.HasSuffix(report.Findings[0].Fix[0], " +select") {
		t.Errorf("of another database doctor says %+v", report.Findings)
	}
}
