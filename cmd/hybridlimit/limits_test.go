package main

import (
	"testing"
)

const severalLimits = `
rules:
  api: {limits: "100/h, 1000/day"}
plans:
  pro: {api: {limits: "500/h, 1000/day"}}
`

// A key with several limits is shown with each of them.
func TestSeveralLimits(t *testing.T) {
	_, flags := real(t)
	rules := "--rules=" + write(t, "rules.yaml", severalLimits)
	cli(t, with(flags, "set", "acme", "90", "--rule=api", rules)...).want(t, exitOK).says(t, "acme api/1h 90 100 10 now", "acme api/1d 90 1,000 910 now")
	cli(t, with(flags, "peek", "acme", "--rule=api", rules, "--plan=pro")...).want(t, exitOK).says(t, "acme api/1h 90 500 410 now", "acme api/1d 90 1,000")
	cli(t, with(flags, "peek", "acme", "--rule=api=70/h, 80/day")...).want(t, exitOK).says(t, "acme api/1h 90 70 0")
	cli(t, with(flags, "top", rules, "--near=50")...).want(t, exitOK).says(t, "acme api/1h")
	cli(t, with(flags, "watch", "acme", "--rule=api", rules)...).want(t, exitUsage).says(t, "watch one of them, as --rule api/1h=LIMIT/PERIOD")
	cli(t, with(flags, "watch", "acme", "--rule=api/1h=100/h", "--count=1")...).want(t, exitOK).says(t, "90")
	cli(t, with(flags, "reset", "acme", "--rule=api", rules)...).want(t, exitOK).says(t, "acme api/1h 0 100", "acme api/1d 0 1,000")
	cli(t, with(flags, "peek", "acme", "--rule=api=70/h, 80/never")...).want(t, exitUsage).says(t, `"never" is no period`)
}

// A quota by the calendar is read from the command line, used up, and reset.
func TestInlineQuota(t *testing.T) {
	_, flags := real(t)
	rule := "--rule=api=calendar,100/month,zone=Europe/Berlin,first_day=15"
	cli(t, with(flags, "set", "k", "100", rule)...).want(t, exitOK)
	cli(t, with(flags, "peek", "k", rule)...).says(t, "100 per month from day 15 in Europe/Berlin")
	cli(t, with(flags, "peek", "k", "--rule=api=calendar,100/month,zone=Nowhere")...).want(t, exitUsage).says(t, "zone: \"Nowhere\" is no time zone")
}
