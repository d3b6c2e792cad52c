package limit

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Faults 45, 46: a bad number is an error that names it.
func TestBadNumbersNameFieldValueAndRule(t *testing.T) {
	year := 365 * 24 * time.Hour
	for _, c := range []struct {
		name  string
		rule  func() (*Rule, error)
		words []string
	}{
		{"negative burst", func() (*Rule, error) { return TokenBucket("api", 1, time.Second, -1) }, []string{"api", "burst", "-1"}},
		{"burst above 2^53", func() (*Rule, error) { return TokenBucket("api", 1, time.Second, arith.MaxUnits+1) }, []string{"api", "burst", "9007199254740993"}},
		{"no rate", func() (*Rule, error) { return TokenBucket("api", 0, time.Second, 1) }, []string{"api", "rate", "0"}},
		{"rate above 2^53", func() (*Rule, error) { return TokenBucket("api", math.MaxInt64, time.Second, 1) }, []string{"rate"}},
		{"zero per", func() (*Rule, error) { return TokenBucket("api", 1, 0, 1) }, []string{"api", "per", "0s"}},
		{"negative per", func() (*Rule, error) { return TokenBucket("api", 1, -time.Second, 1) }, []string{"per", "-1s"}},
		{"per of 200 years", func() (*Rule, error) { return TokenBucket("api", 1, 200*year, 1) }, []string{"per"}},
		{"fills for ever", func() (*Rule, error) { return TokenBucket("api", 1, time.Hour, arith.MaxUnits) }, []string{"api", "burst", "fill"}},
		{"negative limit", func() (*Rule, error) { return SlidingWindow("api", -5, time.Second) }, []string{"api", "limit", "-5"}},
		{"no window", func() (*Rule, error) { return SlidingWindow("api", 5, 0) }, []string{"api", "window", "0s"}},
		{"window of 1 ns", func() (*Rule, error) { return FixedWindow("api", 5, 1) }, []string{"window", "1ns"}},
		{"window of 101 years", func() (*Rule, error) { return FixedWindow("api", 5, 101*year) }, []string{"window"}},
		{"negative window", func() (*Rule, error) { return SlidingLog("api", 5, -time.Second) }, []string{"window", "-1s"}},
		{"no buckets", func() (*Rule, error) { return SlidingWindowBuckets("api", 5, time.Second, 0) }, []string{"buckets", "0"}},
		{"too many buckets", func() (*Rule, error) { return SlidingWindowBuckets("api", 5, time.Second, 1001) }, []string{"buckets", "1001"}},
		{"huge log", func() (*Rule, error) { return SlidingLog("api", maxLogLimit+1, time.Second) }, []string{"limit", "1000001"}},
		{"no name", func() (*Rule, error) { return FixedWindow("", 5, time.Second) }, []string{"name"}},
		{"long name", func() (*Rule, error) { return FixedWindow(strings.Repeat("x", 300), 5, time.Second) }, []string{"name", "300"}},
		{"two at once", func() (*Rule, error) { return FixedWindow("", -1, 0) }, []string{"name", "limit", "window"}},
	} {
		r, err := c.rule()
		if err == nil || r != nil {
			t.Errorf("%s: accepted as %v", c.name, r)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not name %q", c.name, err, w)
			}
		}
	}
}

// Faults 45, 46: the largest and smallest that are allowed.
func TestGoodNumbers(t *testing.T) {
	for _, f := range []func() (*Rule, error){
		func() (*Rule, error) { return TokenBucket("x", 1, time.Second, 0) },
		func() (*Rule, error) { return TokenBucket("x", 1, 30*24*time.Hour, 1) },
		func() (*Rule, error) { return TokenBucket("x", 10_000_000, time.Second, 10) },
		func() (*Rule, error) { return TokenBucket("x", arith.MaxUnits, time.Second, arith.MaxUnits) },
		func() (*Rule, error) { return SlidingWindow("x", arith.MaxUnits, minWindow) },
		func() (*Rule, error) { return SlidingWindow("x", 0, arith.MaxWindow) },
		func() (*Rule, error) { return SlidingLog("x", maxLogLimit, time.Second) },
	} {
		if r, err := f(); err != nil || !r.Valid() || r.String() == "" {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// The short forms are sliding windows, with their errors.
func TestPerPeriod(t *testing.T) {
	for per, make := range map[time.Duration]func(string, int64) (*Rule, error){
		time.Second: PerSecond, time.Minute: PerMinute, time.Hour: PerHour,
	} {
		got, want := Must(make("api", 100)), Must(SlidingWindow("api", 100, per))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v is not %v", got, want)
		}
		if r, err := make("", -1); r != nil || err == nil || !strings.Contains(err.Error(), "name") || !strings.Contains(err.Error(), "-1") {
			t.Errorf("%v, %v", r, err)
		}
	}
	if r, err := TokenBucket("api", 0, 0, 20); r != nil || err == nil || !strings.Contains(err.Error(), "rate 0") || !strings.Contains(err.Error(), "per 0s") {
		t.Errorf("forgotten numbers: %v, %v", r, err)
	}
}

// Whoever starts a program with a bad number reads which one it is.
func TestMustPanicsOnError(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "name") {
			t.Errorf("Must panicked with %v", err)
		}
	}()
	Must(TokenBucket("", 1, time.Second, 1))
}

// A rule that says "unlimited" is one pointer, and nothing that a limiter would take.
func TestUnlimited(t *testing.T) {
	u := Unlimited()
	if u != Unlimited() || u == nil || u.Valid() || u.String() != "unlimited" || u.DryRun() != u || u.Exact() != u {
		t.Errorf("%v: the same pointer %v, valid %v", u, u == Unlimited(), u.Valid())
	}
	if new(Rule).String() != "invalid rule" {
		t.Error("a zero rule is not unlimited")
	}
}
