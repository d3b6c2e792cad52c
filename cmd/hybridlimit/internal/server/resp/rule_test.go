package resp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key that is an address is found by its range, if the file says that keys are addresses; and what
// is exempt is counted, unless it was only looked at.
//
// Fault 103: a key that looks like an address.
func TestRangesOfTheFile(t *testing.T) {
	lim, _ := alone(t)
	_, addr := listen(t, Options{Limiter: lim, Rules: ruleset(t, `
rules:
  user: {algorithm: token-bucket, limit: 60, per: 1m}
  address: {algorithm: token-bucket, limit: 60, per: 1m, keys: addresses}
overrides:
  - {cidr: [10.0.0.0/8, "2001:db8::/32"], unlimited: true}
  - {cidr: 10.6.0.0/16, blocked: true}
`)})
	c := connect(t, addr)
	for _, key := range []string{"10.0.0.1", "::ffff:10.0.0.1", "2001:db8::/64"} {
		c.want("HL.TAKE address "+key+" 1000", ints(0, -1, -1, -1, 0))
		c.want("HL.PEEK address "+key, ints(0, -1, -1, -1, 0))
		c.want("HL.TAKE user "+key+" 60", ints(0, 60, 0, -1, 60))
	}
	c.want("HL.TAKE address 10.6.0.1", ints(1, 0, 0, -1, 0))
	c.want("HL.TAKE address 11.0.0.1", ints(0, 60, 59, -1, 1))
	s := inside.Of(lim).Figures()
	if i := slices.IndexFunc(s.Rules, func(r inside.RuleFigures) bool { return r.Name == "address" }); s.Exempt != 3 || i < 0 || s.Rules[i].Exempt != 3 {
		t.Errorf("%d exempt, %+v", s.Exempt, s.Rules)
	}
}

func TestRulesOfTheFile(t *testing.T) {
	_, addr := listen(t, Options{Rules: ruleset(t, `
rules:
  api: {algorithm: token-bucket, limit: 60, per: 1m, burst: 3}
  free: {algorithm: token-bucket, limit: 60, per: 1m}
  log: {algorithm: sliding-log, limit: 3, per: 1m}
overrides:
  - key: mallory
    blocked: true
  - prefix: staff-
    unlimited: true
`)})
	c := connect(t, addr)
	c.want("HL.TAKE api alice", ints(0, 3, 2, -1, 1))
	c.want("HL.TAKE api alice 2", ints(0, 3, 0, -1, 3))
	c.want("HL.TAKE api alice", ints(1, 3, 0, 1, 3))
	c.want("HL.PEEK api alice", ints(1, 3, 0, 1, 3))
	c.want("HL.PEEK api bob", ints(0, 3, 3, -1, 0))
	c.want("HL.TAKE api bob 0", ints(0, 3, 3, -1, 0))
	c.want("HL.TAKE api bob 4", ints(1, 3, 3, -1, 0)) // never
	c.want("HL.TAKE free staff-bob 1000", ints(0, -1, -1, -1, 0))
	c.want("HL.TAKE api mallory", ints(1, 0, 0, -1, 0))
	c.want("HL.TAKE api carol 2", ints(0, 3, 1, -1, 2))
	c.want("HL.CHARGE api carol 3", ints(1, 3, 0, 3, 5)) // a debt of two
	c.want("HL.CHARGE api carol 100", ints(1, 3, 0, 4, 6))
	c.want("HL.CHARGE api erin -5", ints(0, 3, 3, -1, 0))
	c.want("HL.TAKE api erin 3", ints(0, 3, 0, -1, 3))
	c.want("HL.CHARGE api erin -2", ints(0, 3, 2, -1, 1))
	c.want("HL.CHARGE free staff-bob 9", ints(0, -1, -1, -1, 0))
	c.wantError(c.do("HL.CHARGE api erin"), "number of arguments")
	c.wantError(c.do("HL.CHARGE api erin x"), "quantity is 'x'")
	c.wantError(c.do("HL.CHARGE none erin 1"), "no rule 'none'")
	c.wantError(c.do("HL.CHARGE log erin 1"), "cannot decide")
	c.wantError(c.do("HL.TAKE none bob"), "no rule 'none'")
	c.wantError(c.do("HL.TAKE api bob -1"), "quantity is '-1'")
	c.wantError(c.do("HL.TAKE api"), "number of arguments")
	c.wantError(c.do("HL.PEEK api bob 1"), "number of arguments")
	c.wantError(c.do("HL.TAKE log bob"), "cannot decide")
}

// Clients that ask for many rates leave a place in the metrics for the rules of the file.
func TestManyRatesAndARuleOfTheFile(t *testing.T) {
	lim, _ := alone(t)
	_, addr := listen(t, Options{Limiter: lim, Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 60, per: 1m}}")})
	c := connect(t, addr)
	for i := range 1100 {
		c.do(fmt.Sprint("CL.THROTTLE k 1 1 ", i+1))
	}
	c.do("HL.TAKE api alice")
	for _, is := range inside.Of(lim).Figures().Rules {
		if is.Name == "api" && is.Allowed.Total() == 1 {
			return
		}
	}
	t.Error("the rule of the file has no figures of its own")
}

// What is only looked at is fetched from the other servers, what is taken is not: the limiter
// does so by itself.
func TestLooksAreTold(t *testing.T) {
	var told []string // by the server's goroutine, before it answers
	_, addr := listen(t, Options{
		Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 60, per: 1m}, open: {algorithm: token-bucket, limit: 1, per: 1m, unlimited: true}}"),
		Look:  func(key string, rule *limit.Rule) { told = append(told, rule.Name()+" "+key) },
	})
	c := connect(t, addr)
	for _, command := range []string{"HL.PEEK api a", "HL.TAKE api b", "HL.TAKE api c 0", "HL.PEEK open d", "CL.THROTTLE e 1 1 1", "CL.THROTTLE f 1 1 1 0"} {
		c.do(command)
	}
	c.do("QUIT")
	c.wantEnd()
	if want := []string{"api a", "api c", "CL.THROTTLE 1/1s f"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// broken is a limiter with a mistake.
type broken struct{ byname.Limiter }

func (broken) Take(string, *limit.Rule, int64) limit.Result { panic("a mistake") }

func TestAPanicIsAnErrorReply(t *testing.T) {
	s, addr := listen(t, Options{Limiter: broken{}})
	c := connect(t, addr)
	c.wantError(c.do("CL.THROTTLE k 1 1 1"), "failed to answer")
	c.want("PING", "PONG")
	if n := s.Stats().Panics; n != 1 {
		t.Errorf("%d panics", n)
	}
}

// Each form of an address is that address, for ranges and for the counter; what is none is an error.
//
// Fault 114: the port of a client gets it around a blocked range, or gives it a counter of its own.
func TestKeysThatAreAddresses(t *testing.T) {
	_, addr := listen(t, Options{Rules: ruleset(t, `
rules:
  each: {algorithm: fixed-window, limit: 5, per: 1h, keys: addresses}
  free: {algorithm: fixed-window, limit: 5, per: 1h, keys: addresses, unlimited: true}
  user: {algorithm: fixed-window, limit: 5, per: 1h}
overrides:
  - {cidr: 203.0.113.0/24, blocked: true}
`)})
	c := connect(t, addr)
	remaining := func(args ...string) int64 {
		t.Helper()
		list, ok := c.send(args...).([]any)
		if !ok || len(list) != 5 {
			t.Fatalf("%q: %v", args, list)
		}
		return list[2].(int64)
	}
	for _, key := range []string{"203.0.113.9", "203.0.113.9:443", "[::ffff:203.0.113.9]:443", "ipv4:203.0.113.9:1", "64:ff9b::203.0.113.9"} {
		if list, _ := c.send("HL.TAKE", "each", key).([]any); len(list) != 5 || list[0] != int64(1) || list[1] != int64(0) {
			t.Errorf("%s of a blocked range: %v", key, list)
		}
	}
	for i, key := range []string{"198.51.100.7", "198.51.100.7:1", "198.51.100.7:2", "::ffff:198.51.100.7"} {
		if left := remaining("HL.TAKE", "each", key); left != int64(4-i) {
			t.Errorf("%s: %d remain", key, left)
		}
	}
	if left := remaining("HL.PEEK", "each", "/198.51.100.7:3"); left != 1 {
		t.Errorf("%d remain", left)
	}
	if left := remaining("HL.CHARGE", "each", `"198.51.100.7"`, "-4"); left != 5 {
		t.Errorf("%d remain", left)
	}
	for _, command := range []string{"HL.TAKE", "HL.PEEK"} {
		for _, rule := range []string{"each", "free"} {
			c.wantError(c.send(command, rule, "alice"), "the keys of this rule are addresses")
			c.wantError(c.send(command, rule, ""), "the key is empty")
		}
	}
	c.wantError(c.send("HL.CHARGE", "each", "198.51.100", "1"), "the keys of this rule are addresses")
	if left := remaining("HL.TAKE", "user", "198.51.100.7:1") + remaining("HL.TAKE", "user", "198.51.100.7:2"); left != 8 {
		t.Errorf("%d remain of two users who are called like addresses", left)
	}
}
