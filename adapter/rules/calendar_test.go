package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

const calendarFile = `
rules:
  daily: {algorithm: calendar, limit: 10, per: day, zone: Europe/Berlin}
  weekly: {algorithm: calendar, limit: 10, per: week, first_day: 7}
  monthly: {algorithm: calendar, limit: 10, per: month, exact: true}
plans:
  more: {monthly: {limit: 50}, daily: {first_day: 1}}
  spelled: {weekly: {limit: 20, zone: UTC}, monthly: {first_day: 1}}
  since-the-15th: {monthly: {first_day: 15}}
  tokyo: {daily: {zone: Asia/Tokyo}, monthly: {per: week}}
overrides:
  - key: evil
    blocked: true
`

// Rules by the calendar, and those of plans: with other periods they have a counter of their own.
//
// Fault 105: plans with other periods.
func TestCalendar(t *testing.T) {
	set := must(t, calendarFile)
	for _, c := range []struct{ name, plan, key, want string }{
		{"daily", "", "k", `calendar "daily": 10 per day in Europe/Berlin`},
		{"daily", "more", "k", `calendar "daily": 10 per day in Europe/Berlin`},
		{"daily", "tokyo", "k", `calendar "daily@tokyo": 10 per day in Asia/Tokyo`},
		{"weekly", "", "k", `calendar "weekly": 10 per week from day 7 in UTC`},
		{"monthly", "more", "k", `calendar "monthly": 50 per month in UTC (exact)`},
		{"weekly", "spelled", "k", `calendar "weekly": 20 per week from day 7 in UTC`},
		{"monthly", "spelled", "k", `calendar "monthly": 10 per month in UTC (exact)`},
		{"monthly", "since-the-15th", "k", `calendar "monthly@since-the-15th": 10 per month from day 15 in UTC (exact)`},
		{"monthly", "tokyo", "k", `calendar "monthly@tokyo": 10 per week in UTC (exact)`},
		{"monthly", "", "evil", `calendar "monthly": 0 per month in UTC`},
	} {
		rule := set.For(c.name, c.key)
		if c.plan != "" {
			rule = set.ForPlan(c.name, c.plan, c.key)
		}
		if rule.String() != c.want {
			t.Errorf("%+v: %v", c, rule)
		}
	}
	if other := must(t, calendarFile); !arith.Of(other.Rule("daily")).SameShape(arith.Of(set.Rule("daily"))) {
		t.Error("the same file has another calendar when it is read again")
	}
}

// What is no calendar is said with its field.
func TestBadCalendars(t *testing.T) {
	for _, c := range []struct{ rule, field, message string }{
		{`algorithm: calendar, limit: 1, per: 24h`, "rules.r.per", `"24h" is no period of a calendar: day, week or month`},
		{`algorithm: calendar, limit: 1`, "rules.r.per", "is missing"},
		{`algorithm: calendar, limit: 1, per: day, zone: Mars/Olympus`, "rules.r.zone", `"Mars/Olympus" is no time zone that is known here`},
		{`algorithm: calendar, limit: 1, per: day, zone: ../../etc/passwd`, "rules.r.zone", `is no time zone`},
		{`algorithm: calendar, limit: 1, per: day, zone: Local`, "rules.r.zone", `must be the same in every process`},
		{`algorithm: calendar, limit: 1, per: day, zone: ""`, "rules.r.zone", `must not be empty`},
		{`algorithm: calendar, limit: 1, per: month, first_day: 0`, "rules.r.first_day", "must be 1 to 31"},
		{`algorithm: calendar, limit: 1, per: week, first_day: 8`, "rules.r.first_day", "must be 1 to 7 for a week"},
		{`algorithm: calendar, limit: 1, per: day, first_day: 2`, "rules.r.first_day", "a day has no first_day"},
		{`algorithm: calendar, limit: 1, per: day, buckets: 2`, "rules.r.buckets", "is for sliding-window alone"},
		{`algorithm: calendar, limit: 1, per: day, burst: 2`, "rules.r.burst", "a calendar lets its whole limit pass at once"},
		{`algorithm: fixed-window, limit: 1, per: day`, "rules.r.per", "must be a duration such as 1s, 1m or 24h, is day: a day of the calendar is algorithm: calendar, per: day"},
		{`algorithm: sliding-window, limit: 1, per: months`, "rules.r.per", "a month of the calendar is algorithm: calendar, per: month"},
		{`limits: "10/s, 100000/month"`, "rules.r.limits", "a quota by the calendar is a rule of its own"},
		{`algorithm: calendar, limit: 1, per: day, timezone: UTC`, "rules.r.timezone", "unknown field, did you mean zone?"},
		{`algorithm: fixed-window, limit: 1, per: 1h, zone: UTC`, "rules.r.zone", "is for calendar alone"},
		{`limits: 10/s, zone: UTC`, "rules.r.zone", "must not be given beside limits"},
	} {
		problems := Validate("", []byte("rules: {r: {"+c.rule+"}}"))
		if len(problems) != 1 || problems[0].Field != c.field || !strings.Contains(problems[0].Message, c.message) {
			t.Errorf("%s: %v", c.rule, problems)
		}
	}
	if arith.Day.String() != "day" {
		t.Error("the words of a file are those of package limit")
	}
}

// A plan that shortens the periods of a rule has another first day, or says so.
func TestFirstDayOfAPlan(t *testing.T) {
	const file = "rules: {r: {algorithm: calendar, limit: 1, per: month, first_day: %s}}\nplans: {p: {r: {%s}}}"
	for _, c := range []struct{ first, change, field, message string }{
		{"15", "per: week", "plans.p.r.per", "the rule has the first day 15: write first_day here as well"},
		{"15", "per: week, first_day: 8", "plans.p.r.first_day", "must be 1 to 7 for a week"},
		{"15", "per: day", "plans.p.r.per", "the rule has the first day 15: write first_day: 1 here as well"},
		{"15", "per: day, first_day: 2", "plans.p.r.first_day", "a day has no first_day"},
		{"15", "per: day, first_day: 1", "", ""},
		{"32", "limit: 2", "rules.r.first_day", "must be 1 to 31"},
		{"7", "per: week", "", ""},
		{"15", "limit: 2", "", ""},
	} {
		problems := Validate("", fmt.Appendf(nil, file, c.first, c.change))
		if c.field == "" && len(problems) == 0 {
			continue
		}
		if len(problems) != 1 || problems[0].Field != c.field || !strings.Contains(problems[0].Message, c.message) {
			t.Errorf("%+v: %v", c, problems)
		}
	}
	if problems := Validate("", []byte("rules: {r: {algorithm: calendar, limit: 1, per: week, first_day: 8}}\nplans: {p: {r: {limit: 2}}}")); len(problems) != 1 {
		t.Errorf("one fault is said %d times: %v", len(problems), problems)
	}
}
