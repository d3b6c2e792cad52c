package remote

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Several counters of which a log is one are written in an order in which missing memory is noticed first, also
// if there is something to remove. To forget takes no memory. Other calls are in TestClassifyEveryCall.
func TestLogOutOfMemory(t *testing.T) {
	b := onReal(t)
	l, log, drain := b.limiter(), slidingLog(t, 10, time.Hour), funnel(t, 10, 1, time.Hour)
	checks := []limit.Check{{Key: "k", Rule: log, N: 1}, {Key: "k", Rule: drain, N: 1}, {Key: "k", Rule: log, N: 1}}
	takeAll(t, l, checks...)
	before := b.dump()
	b.do("CONFIG", "SET", "maxmemory", "1")
	for _, checks := range [][]limit.Check{checks[:2], checks[1:]} {
		v, err := l.TakeAll(ctx, checks...)
		if wantClass(t, err, ClassUnavailable, "oom"); v.Allowed {
			t.Errorf("%v: %+v", checks, v)
		}
	}
	if after := b.dump(); after != before {
		t.Errorf("it left\n%safter\n%s", after, before)
	}
	if err := l.Reset(ctx, "k", log); err != nil || len(b.keys()) != 1 {
		t.Errorf("reset: %v, keys %q", err, b.keys())
	}
}

// What is set replaces all units: those of before, of this microsecond, and of
// later ones if Redis' clock went back; and the numbers go on.
func TestSetLog(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), slidingLog(t, 30, time.Hour)
	for _, c := range []struct {
		on   time.Duration
		used int64
	}{{time.Second, 4}, {0, 6}, {0, 2}, {-2 * time.Second, 3}, {time.Minute, 0}} {
		take(t, l, "k", rule, 5)
		b.advance(c.on)
		take(t, l, "k", rule, 5)
		if err := l.Set(ctx, "k", rule, c.used); err != nil {
			t.Fatal(err)
		}
		take(t, l, "k", rule, 5)
		if n := b.rdb.ZCard(ctx, l.store.Keyspace().CounterKey(rule, "k")).Val(); n != c.used+5 {
			t.Errorf("%+v: %d members, want %d", c, n, c.used+5)
		}
	}
}

// A sorted set of somebody else's is no log, and stays as it is.
func TestForeignSortedSet(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule, other := b.limiter(), slidingLog(t, 10, time.Hour), fixed(t, 10, time.Hour)
		now := b.now()
		own := redis.Z{Score: float64(now), Member: fmt.Sprintf("%d-0000000", now)}
		for i, z := range []redis.Z{
			{Score: 5, Member: "foreign"}, {Score: 5, Member: ""}, {Score: 5, Member: "5"}, {Score: 5, Member: "5-"}, {Score: 5, Member: "5-1x"},
			{Score: 5, Member: "x5-1"}, {Score: 5, Member: "6-1"}, {Score: -5, Member: "-5-1"}, {Score: 5.5, Member: "5.5-1"}, {Score: 5.5, Member: "6-1"}, {Score: 1e18, Member: "1e+18-1"},
			{Score: 1 << 53, Member: "9007199254740992-0"}, {Score: math.Inf(1), Member: "inf-0000000"}, {Score: math.Inf(-1), Member: "-inf-0000000"},
		} {
			for _, set := range [][]redis.Z{{z}, {z, own}} {
				key := fmt.Sprint(i, len(set))
				name := l.store.Keyspace().CounterKey(rule, key)
				b.rdb.ZAdd(ctx, name, set...)
				b.rdb.Expire(ctx, name, time.Hour)
				before := b.dump()
				v, err := l.TakeAll(ctx, limit.Check{Key: key, Rule: other, N: 1}, limit.Check{Key: key, Rule: rule, N: 1})
				if v.Allowed || v.By != 1 || v.Rule != rule {
					t.Errorf("%+v: %+v", set, v)
				}
				_, takeErr := l.Take(ctx, key, rule, 1)
				_, backErr := l.Refund(ctx, key, rule, 1)
				for call, err := range map[string]error{"TakeAll": err, "Take": takeErr, "Refund": backErr, "Set": l.Set(ctx, key, rule, 1)} {
					if !isKeyError(err) {
						t.Errorf("%s of %+v: %v", call, set, err)
					}
				}
				if after := b.dump(); after != before {
					t.Errorf("it left\n%safter\n%s", after, before)
				}
			}
		}
	})
}

// A user who lacks one of the commands gets nothing, of whatever kind.
func TestTakeAllWithoutACommand(t *testing.T) {
	b := onReal(t)
	l := b.limiter()
	log, other, drain := slidingLog(t, 10, time.Hour), built(t)(limit.SlidingLog("other", 10, time.Hour)), funnel(t, 10, 1, time.Hour)
	for _, held := range []bool{false, true} {
		for _, rules := range [][]*limit.Rule{{log, drain}, {drain, log}, {log, other}, {fixed(t, 10, time.Hour), log, drain}} {
			var checks []limit.Check
			for _, r := range rules {
				checks = append(checks, limit.Check{Key: "k", Rule: r, N: 1})
			}
			if held {
				takeAll(t, l, checks...)
			}
			before := b.dump()
			for _, command := range []string{"zremrangebyscore", "zadd", "set"} {
				b.do("ACL", "SETUSER", "default", "-"+command)
				v, err := l.TakeAll(ctx, checks...)
				b.do("ACL", "SETUSER", "default", "+"+command)
				if len(rules) == 2 && rules[1] == other && command == "set" {
					continue // not needed
				}
				wantClass(t, err, ClassMisconfigured, "noperm")
				if after := b.dump(); after != before || v.Allowed {
					t.Errorf("%v without %s: %+v left\n%safter\n%s", rules, command, v, after, before)
				}
			}
			b.do("FLUSHALL")
		}
	}
}
