package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Fault 102: several limits in one rule.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10/s":                           `sliding-window "api": 10 per second`,
		" 10 / second ":                  `sliding-window "api": 10 per second`,
		"10/S":                           `sliding-window "api": 10 per second`,
		"500/m":                          `sliding-window "api": 500 per minute`,
		"500 per minute":                 `sliding-window "api": 500 per minute`,
		"60/hour":                        `sliding-window "api": 60 per hour`,
		"10000/day":                      `sliding-window "api": 10000 per 24 hours`,
		"10/2 weeks":                     `sliding-window "api": 10 per 336 hours`,
		"5/10s":                          `sliding-window "api": 5 per 10 seconds`,
		"5/10 sec":                       `sliding-window "api": 5 per 10 seconds`,
		"5/1h30m":                        `sliding-window "api": 5 per 90 minutes`,
		"5/100ms":                        `sliding-window "api": 5 per 100ms`,
		"0/s":                            `sliding-window "api": 0 per second`,
		"10/S Burst 20":                  `token-bucket "api": 20, refilling 10 per second`,
		"10/s burst 20":                  `token-bucket "api": 20, refilling 10 per second`,
		"10/s, 500/m,10000/day":          `combined "api": sliding-window "api/1s": 10 per second; sliding-window "api/1m": 500 per minute; sliding-window "api/1d": 10000 per 24 hours`,
		"10/s burst 20, 5/90s, 9/1500ms": `combined "api": token-bucket "api/10/1s": 20, refilling 10 per second; sliding-window "api/90s": 5 per 90 seconds; sliding-window "api/1.5s": 9 per 1.5s`,
	} {
		r, err := limit.Parse("api", text)
		if err != nil || r.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, r, err, want)
		}
	}
	for text, says := range map[string]string{
		"":                          `"" is no limit such as 10/s`,
		"10":                        "no limit such as",
		"10/":                       "no limit such as",
		"/s":                        "no limit such as",
		"ten/s":                     "no limit such as",
		"-1/s":                      "no limit such as",
		"1.5/s":                     "no limit such as",
		"10/s,":                     `"" is no limit`,
		"10/s;5/m":                  "no limit such as",
		"10/fortnight":              `"fortnight" is no period`,
		"10/ms":                     `"ms" is no period`,
		"10/month":                  `"month" is no period such as s, minute, 10s or 1h30m: a quota by the calendar is a rule of its own`,
		"10/0s":                     "window 0s: must be",
		"10/-1s":                    "no limit such as",
		"10/99999 weeks":            "a period is at most",
		"10/99999999999999999999s":  "a period is at most",
		"99999999999999999999/s":    "a number above",
		"9007199254740993/s":        "limit 9007199254740993: must be",
		"10/s burst":                "no period",
		"10/s burst x":              "no period",
		"0/s burst 5":               "rate 0: must be",
		"10/s, 20/second":           `another one is called "api/1s"`,
		"10/60s, 20/m":              `another one is called "api/1m"`,
		"10/s, x":                   `"x" is no limit`,
		strings.Repeat("1/s,", 300): "must be at most 1024",
		strings.TrimSuffix(strings.Repeat("1/s,", 17), ","): "must be 1 to 16",
	} {
		if r, err := limit.Parse("api", text); err == nil || r != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v, want %s", text, r, err, says)
		}
	}
	if _, err := limit.Parse("", "10/s, 5/m"); err == nil {
		t.Error("no name")
	}
	long := strings.Repeat("x", 1000)
	if _, err := limit.Parse(long, "x"); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long name: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("api", "10/s, 500/m burst 3, 1/1h30m")
	f.Add("", "/,/ per burst 99999999999999999999")
	f.Fuzz(func(t *testing.T, name, text string) {
		r, err := limit.Parse(name, text)
		if (r == nil) == (err == nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if r != nil && (!r.Valid() || r.Limit() < 0 || r.Period() <= 0 || r.Name() != name) {
			t.Fatalf("%v", r)
		}
	})
}

// Fault 102: several limits in one rule.
func TestCombine(t *testing.T) {
	second, minute := limit.Must(limit.PerSecond("s", 10)), limit.Must(limit.PerMinute("m", 5))
	r := limit.Must(limit.Combine("api", second, minute))
	if r.Name() != "api" || r.Limit() != 5 || r.Period() != time.Minute || arith.Of(r).Algorithm != arith.Combined ||
		arith.Of(r).Algorithm.String() != "combined" || !r.Valid() || r.IsDryRun() || len(r.Parts()) != 2 || arith.Of(r).Units != 0 || arith.Of(r).Buckets != 0 {
		t.Errorf("%v: %d per %v, %v", r, r.Limit(), r.Period(), r.Parts())
	}
	dry := r.DryRun()
	if !dry.IsDryRun() || !dry.Parts()[0].IsDryRun() || !dry.Parts()[1].IsDryRun() || r.Parts()[0].IsDryRun() {
		t.Errorf("%v of %v", dry, r)
	}
	if all := limit.Must(limit.Combine("api", second.DryRun(), minute.DryRun())); !all.IsDryRun() {
		t.Error("no dry run although no rule refuses")
	}
	list := []*limit.Rule{second, minute}
	if r := limit.Must(limit.Combine("api", list...)); true {
		list[0] = nil
		if r.Parts()[0] != second {
			t.Error("the rule has changed with the list")
		}
	}
	if second.Parts() != nil || (*limit.Rule)(nil).Parts() != nil || limit.Unlimited().Parts() != nil {
		t.Error("parts of a rule that is not combined")
	}
	for name, rules := range map[string][]*limit.Rule{
		"none": {}, "nil": {second, nil}, "zero": {new(limit.Rule)}, "unlimited": {second, limit.Unlimited()},
		"combined": {r}, "mixed": {second.DryRun(), minute}, "mixed again": {minute, second.DryRun()}, "one name": {second, limit.Must(limit.PerHour("s", 10))}, "many": make([]*limit.Rule, 17),
	} {
		if got, err := limit.Combine("api", rules...); err == nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
