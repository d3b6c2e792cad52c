package main

import "testing"

const exactFile = `
rules:
  login: {algorithm: sliding-window, limit: 5, per: 24h, exact: true}
  payout: {limits: "1/h, 10/d", exact: true}
  trial: {algorithm: gcra, limit: 5, per: 24h, exact: true, dry_run: true}
`

// Whether a rule is exact is said where it is printed, of each limit of several.
func TestExactRulesAreShown(t *testing.T) {
	_, flags := real(t)
	file := write(t, "rules.yaml", exactFile)
	for rule, says := range map[string][]string{
		"payout":                             {"payout/1h: sliding-window, 1 per 1h, exact", "payout/1d: sliding-window, 10 per 24h, exact"},
		"trial":                              {"trial: token-bucket, 5 at once, 5 per 24h, exact, dry run"},
		"api=sliding-window,5/1h,exact=true": {"api: sliding-window, 5 per 1h, exact"},
	} {
		cli(t, with(flags, "peek", "k", "--rule="+rule, "--rules="+file)...).want(t, exitOK).says(t, says...)
		var got struct{ Keys []keyJSON }
		cli(t, with(flags, "--json", "set", "k", "1", "--rule="+rule, "--rules="+file)...).want(t, exitOK).read(t, &got)
		for _, k := range got.Keys {
			if !k.Rule.Exact || k.Rule.DryRun != (rule == "trial") || k.Used != 1 {
				t.Errorf("%s: %+v", rule, k)
			}
		}
		if len(got.Keys) != len(says) {
			t.Errorf("%s has %d limits", rule, len(got.Keys))
		}
	}
	cli(t, "validate", "--for=serve", file).want(t, exitOK).says(t, "valid: 3 rules")
	cli(t, with(flags, "peek", "k", "--rule=api=sliding-window,5/1h,exact=1")...).want(t, exitUsage).says(t, "exact: must be true or false")
}
