package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// calls returns how often a server has executed a command.
func calls(t testing.TB, srv *redistest.Server, command string) int64 {
	t.Helper()
	info, err := srv.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_"+command], "calls="), ",")
	n, _ := strconv.ParseInt(text, 10, 64) // none: it was never executed
	return n
}

// Very many keys are used up at the same time. Redis delivers no more messages than the budget says,
// what is kept back is counted, and all else goes on. Of the large fleet only four nodes are real; the
// others are only listed, so that each message counts as many deliveries.
//
// Fault 92: 20,000 keys are used up at once.
func TestRealNoticesWithinTheBudget(t *testing.T) {
	t.Parallel()
	for _, fleet := range []int64{4, 200} {
		t.Run(fmt.Sprint(fleet, " nodes"), func(t *testing.T) { noticesWithinTheBudget(t, fleet) })
	}
}

func noticesWithinTheBudget(t *testing.T, fleet int64) {
	const size, keys, budget = 4, 20_000, 20_000 // of deliveries per second
	srv := redistest.Start(t)
	nodes := realFleet(t, srv.Addr(), size, hybrid.Options{})
	admin := dial(t, srv.Addr())
	listening(t, admin, size)
	noticesArrive(t, nodes[0], nodes[1:]...)
	for i := range fleet - size {
		until := float64(time.Now().Add(time.Hour).UnixMicro())
		if err := admin.ZAdd(bg, keyspace().NodesKey(), redis.Z{Score: until, Member: fmt.Sprint("listed-", i)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(of func(hybrid.Stats) uint64) (n int64) {
		for _, l := range nodes {
			n += int64(of(l.Stats()))
		}
		return n
	}
	beats := func(s hybrid.Stats) uint64 { return s.Heartbeats } // each publishes an echo, to one node
	told := func(s hybrid.Stats) uint64 { return s.NoticesSent }
	for _, l := range nodes {
		eventually(t, "it knows of all", func() bool { return l.State().Nodes == int(fleet) })
	}
	once := limit.Must(limit.SlidingWindow("once", 1, time.Hour))
	published, echoes, notices, begun := calls(t, srv, "publish"), sum(beats), sum(told), time.Now()
	var wg sync.WaitGroup
	for i, l := range nodes {
		wg.Go(func() {
			for k := range keys / size {
				if key := fmt.Sprint(i, "-", k); !l.Allow(key, once) {
					t.Errorf("%s is refused", key)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, l := range nodes {
		flush(t, l)
		if res := l.Take(fmt.Sprint(i, "-0"), once, 1); res.Allowed || res.Source != limit.SourceSynced {
			t.Errorf("node %d: %+v", i, res)
		}
	}
	// What is sent again, because the answer was late, is not told: it may be fewer than there are keys.
	last, changed := int64(0), time.Now()
	within(t, 2*patience, "nothing more is told", func() bool {
		if now := sum(told) - notices; now != last {
			last, changed = now, time.Now()
		}
		return last > keys/2 && time.Since(changed) > 3*time.Second // one that waits for its turn does so for 2 s at most
	})
	elapsed := changed.Sub(begun)
	messages := calls(t, srv, "publish") - published - (sum(beats) - echoes) + size // one echo of each node may be under way
	late, received := sum(func(s hybrid.Stats) uint64 { return s.NoticesLate }), sum(func(s hybrid.Stats) uint64 { return s.NoticesHeard })
	t.Logf("%d messages for %d of %d keys in %v, %d heard, %d late", messages, last, keys, elapsed, received, late)
	// A burst of a second, and what each node has published before it has heard of the others'.
	most := int64(budget*elapsed.Seconds()) + budget + size*fleet
	if messages*fleet > most {
		t.Errorf("%d messages to %d nodes, want %d deliveries at most", messages, fleet, most)
	}
	// In between it depends on how fast the machine is: the budget is for a time.
	if messages*fleet > most && late == 0 || messages*fleet <= budget && late > 0 {
		t.Errorf("%d notices late after %d messages in %v", late, messages, elapsed)
	}
	for i, l := range nodes {
		if l.Stats().StateChanges != 1 || l.State().Deaf != "" {
			t.Errorf("node %d: %+v, %+v", i, l.State(), l.Stats())
		}
	}
}

// noticeForger publishes on the channel what it likes.
type noticeForger struct {
	t       testing.TB
	srv     *redistest.Server
	channel string
}

func (f *noticeForger) publish(payload string) {
	f.t.Helper()
	if n, err := f.srv.Do("PUBLISH", f.channel, payload); err != nil || n != int64(1) {
		f.t.Fatalf("%v have heard, %v", n, err)
	}
}

func (f *noticeForger) notices(list ...report.Notice) {
	f.t.Helper()
	f.publish(string(redisstore.AppendNotices(nil, "forger", list)))
}

// used says that a key is used up until the year 2255, the latest that a message can say.
func (f *noticeForger) used(key string, rule *limit.Rule) report.Notice {
	return report.Notice{
		ID: redisstore.NoticeIDOf(counterKey(rule, key)), Shape: arith.Of(rule).ShapeHash(), Limit: rule.Limit(),
		Now: time.Duration(time.Now().UnixNano()), Until: limit.MaxUnits * time.Microsecond,
	}
}

// What is no message is counted, and ignored. What says that a key is used up, and is wrong, refuses it
// until Redis has answered: a lag after a check at most.
//
// Fault 89: forged notices.
func TestRealNoticesForged(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	l := realNode(t, srv.Addr(), hybrid.Options{})
	admin := dial(t, srv.Addr())
	listening(t, admin, 1)
	f := &noticeForger{t, srv, noticeChannel(t, admin)}
	for _, garbage := range []string{"", "\x01", "\x01\x01n\xff\xff\xff", strings.Repeat("\x01", 1<<20)} {
		before := l.Stats().BadReplies
		f.publish(garbage)
		eventually(t, "counted", func() bool { return l.Stats().BadReplies == before+1 })
	}
	before := l.Stats()
	f.publish("\x02of a later release")
	for _, rule := range five() {
		for _, known := range []bool{false, true} {
			key := fmt.Sprint("known ", known)
			if known {
				l.Allow(key, rule)
				flush(t, l)
			}
			received := l.Stats().NoticesHeard
			outOfRange, other := f.used(key, rule), f.used(key, rule)
			outOfRange.Shard, other.Limit = 7, 0
			f.notices(outOfRange, other, f.used(key, rule))
			eventually(t, "heard", func() bool { return l.Stats().NoticesHeard == received+2 }) // not the one of no shard
			begun := time.Now()
			if res := l.Take(key, rule, 1); res.Allowed || res.Source != limit.SourceNotice || res.RetryAfter > 2*time.Minute {
				t.Errorf("%v, %s: %+v, want a refusal, for no longer than the rule counts", rule, key, res)
			}
			// A lag, an interval, and an exchange, which takes two time-outs at most. A machine three
			// times slower takes three times that.
			const most = time.Second + 100*time.Millisecond + 2*250*time.Millisecond
			tick := time.NewTicker(100 * time.Millisecond)
			for !l.Allow(key, rule) && time.Since(begun) < patience {
				<-tick.C
			}
			tick.Stop()
			if took := time.Since(begun); took > 3*most {
				t.Errorf("%v, %s: refused for %v, want %v at most", rule, key, took, most)
			} else {
				t.Logf("%v, %s: refused for %v", rule, key, took)
			}
		}
	}
	if s := l.Stats(); s.BadReplies != before.BadReplies || s.StateChanges != 1 || l.State().Deaf != "" {
		t.Errorf("%+v, %+v, before %+v", l.State(), s, before)
	}
}

// Notices of 100,000 keys that no one has need no more memory than there may be keys.
//
// Fault 89: a flood of forged notices.
func TestRealNoticesFlooded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const bound = 4096 // of what is kept, with fewer keys
	l := realNode(t, srv.Addr(), hybrid.Options{MaxKeys: 1000})
	admin := dial(t, srv.Addr())
	listening(t, admin, 1)
	f := &noticeForger{t, srv, noticeChannel(t, admin)}
	rng := rand.New(rand.NewPCG(89, 1))
	most := 0
	for sent := uint64(0); sent < 100_000; sent += redisstore.MaxNotices {
		list := make([]report.Notice, redisstore.MaxNotices)
		for i := range list {
			list[i] = f.used(strconv.FormatUint(rng.Uint64(), 36), hourFive)
		}
		f.notices(list...)
		// A listener that is behind drops messages, and one that subscribes anew misses them: wait for each.
		published := time.Now()
		eventually(t, "heard", func() bool {
			if time.Since(published) > 3*time.Second {
				f.notices(list...)
				published = time.Now()
			}
			return l.Stats().NoticesHeard >= sent+redisstore.MaxNotices
		})
		most = max(most, l.Kept())
	}
	if most > bound || most < bound/2 {
		t.Errorf("%d notices kept, want %d at most, and nearly as many", most, bound)
	}
	for i := range 100 {
		if res := l.Take(fmt.Sprint("key", i), hourFive, 1); !res.Allowed {
			t.Errorf("%+v", res)
		}
	}
	flush(t, l)
	if s := l.Stats(); s.StateChanges != 1 || s.BadReplies != 0 || l.State().Deaf != "" {
		t.Errorf("%+v, %+v", l.State(), s)
	}
}
