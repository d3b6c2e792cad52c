package counter

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// There may be millions of counters. The allocator rounds up to 240 and 288 bytes.
func TestCountersAreSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers are shorter")
	}
	if is := unsafe.Sizeof(leakyCounter{}); is > 240 {
		t.Errorf("a counter of a leaky bucket has %d bytes", is)
	}
	if is := unsafe.Sizeof(windowCounter{}); is > 288 {
		t.Errorf("a counter of a window has %d bytes", is)
	}
}

// small reports whether the window of c has no memory but what every one has.
func small(c *Counter) bool {
	return field(c.window(), "list").Pointer() == field(c.window(), "room").UnsafeAddr()
}

// Of keys that come and may not come again none keeps more memory than every window has, before
// they are reported and after.
func TestWindowsOfOneBucketAreSmall(t *testing.T) {
	now := int64(1e12)
	for _, r := range []*limit.Rule{windowRule(t, 10, time.Second, 10), windowRule(t, 10, time.Second, 100), limit.Must(limit.FixedWindow("test", 10, time.Second))} {
		c := NewAlone("k", r, newTestLink(), now)
		isSmall := func(what string) {
			t.Helper()
			if !small(c) {
				t.Errorf("%v, %s: is not small", r, what)
			}
		}
		c.Ask(now, 1, r, true)
		isSmall("asked once")
		rep, _ := c.collect(now, Normal)
		isSmall("under way")
		c.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: rep.Buckets}, At: now, ServerNow: now})
		isSmall("answered")
		c.MarkRestore(now)
		if rep, _ = c.collect(now, Normal); !rep.Restore || !slices.Equal(rep.Known.Buckets, []report.Bucket{{ID: now / int64(arith.Of(r).Width), Units: 1}}) {
			t.Errorf("%v: raises %+v", r, rep)
		}
		c.Settle(now, report.Answer{Rule: r, Restored: true, State: report.State{Buckets: rep.Known.Buckets}, At: now, ServerNow: now})
		c.Check(now, 1, r)
		isSmall("raised")
	}
}

// A window that was asked in several buckets is small again when Redis knows of one alone, and
// when what was handed back has been told.
func TestWindowsBecomeSmall(t *testing.T) {
	now, r := int64(1e12), windowRule(t, 10, time.Second, 10)
	width := int64(arith.Of(r).Width)
	c := NewAlone("k", r, newTestLink(), now)
	settle := func() {
		rep, _ := c.collect(now, Normal)
		c.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: []report.Bucket{{ID: now / width, Units: 3}}}, At: now, ServerNow: now, Returned: len(rep.BackBuckets) > 0})
	}
	for range 4 {
		c.allow(now, 1, r)
		now += width
	}
	settle()
	if c.Refund(now, 1, r); small(c) || !c.replica().HasReturns() {
		t.Error("is small with units handed back")
	}
	c.Refresh()
	now += 12 * width
	c.allow(now, 1, r)
	settle()
	if !small(c) || c.replica().HasReturns() {
		t.Errorf("is not small: %+v", c.window())
	}
}

// What has expired when a key is asked under another rule has expired by the old one.
func TestWindowsChangeRules(t *testing.T) {
	now := int64(1e12)
	r, longer := windowRule(t, 10, time.Second, 10), windowRule(t, 10, 2*time.Second, 10)
	for after, left := range map[time.Duration]int64{0: 9, 900 * time.Millisecond: 9, 1900 * time.Millisecond: 10} {
		c := NewAlone("k", r, nil, now)
		c.allow(now, 1, r)
		if res, _ := c.peek(now+int64(after), 1, longer); res.Remaining != left {
			t.Errorf("after %v: %d units remain, want %d", after, res.Remaining, left)
		}
	}
}

// A waiter for units of a window that counts as many as there are keeps its claim.
func TestClaimBesideManyUnits(t *testing.T) {
	r, now := windowRule(t, 1<<53, time.Hour, 10), int64(1e12)
	c := NewAlone("k", r, newTestLink(), now)
	c.link().Part(1).SetOffset(0, 1)
	c.allow(now, 1, r)
	for i := range 2 { // more than can be distinguished from more and a claim
		if i == 1 {
			c.Reserve(now, 5, r, Terms{Claim: true})
		}
		c.asks(t, now)
		last := report.Bucket{ID: now / int64(arith.Of(r).Width), Units: 1 << 62}
		c.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: []report.Bucket{last}}, At: now, ServerNow: now})
		now += int64(time.Minute)
	}
	c.lock(now)
	if was := c.claimLocked(0); was != 5 {
		t.Errorf("%d units are kept, want 5", was)
	}
	c.mu.Unlock()
}

// Of many windows, each asked once and then looked at as a sweep does, none takes memory of
// its own, or looks used.
func TestManyWindowsAreSmall(t *testing.T) {
	r, now := windowRule(t, 10, time.Minute, 10), start.UnixNano()
	group := new(Group)
	for i, k := range names("k", 3000) {
		c := New(k, r, uint64(i), group, now)
		c.Enter(new(Entry), uint64(i+1))
		c.Check(now, 1, r)
		if used := c.Offer(); used {
			t.Fatal("a new counter looks used")
		}
		if _, ok := c.Drop(Idle, now); ok {
			t.Fatal("dropped in use")
		}
		if !small(c) {
			t.Fatalf("%q is not small", k)
		}
	}
}
