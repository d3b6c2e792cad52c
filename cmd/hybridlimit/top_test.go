package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestTop(t *testing.T) {
	s, flags := real(t)
	rules := "--rules=" + write(t, "rules.yaml", strings.Replace(rulesFile, "limit: 5\n    per: 1h", "limit: 1\n    per: 500h\n    burst: 1000", 1))
	for _, c := range []struct {
		key, rule string
		used      int
	}{
		{"bob", "login", 1000}, {"bea", "login", 799}, {"ben", "login", 800}, {"bill", "login", 1500}, {"foe", "login", 7}, {"carl", "login", 950}, {"empty", "login", 0},
	} {
		rule := "--rule=login"
		if c.key == "foe" { // who is blocked, and has used something before
			rule = "--rule=login=token-bucket,1/500h,burst=1000"
		}
		cli(t, with(flags, "set", c.key, fmt.Sprint(c.used), rule, rules)...).want(t, exitOK)
	}
	cli(t, with(flags, "set", "x", "5", "--rule=other=sliding-window,5/1000h")...).want(t, exitOK)
	do(t, s, "SET", "hl:1:{0}:f:5:login:k:broken", "garbage")
	do(t, s, "SET", "somebody's", "garbage")

	cli(t, with(flags, "top", rules)...).want(t, exitOK).golden(t, "top", s)
	var top topJSON
	cli(t, with(flags, "top", "--json", "-n3", rules)...).want(t, exitOK).read(t, &top)
	if len(top.Keys) != 3 || top.Near != 5 || top.Over != 2 || top.Unknown != 1 || top.Unusable != 1 || !top.Complete || top.Total != 10 || top.Counters != 9 {
		t.Errorf("%+v", top)
	}
	for i, key := range []string{"foe", "bill", "bob"} {
		if top.Keys[i].Key != key {
			t.Errorf("%d is %s, want %s", i, top.Keys[i].Key, key)
		}
	}
	cli(t, with(flags, "top", "--json", "--near=0", rules)...).want(t, exitOK).read(t, &top)
	if len(top.Keys) != 6 {
		t.Errorf("with --near=0: %+v", top.Keys)
	}
	cli(t, with(flags, "top", "--json", "--rule=other=sliding-window,5/1000h", rules)...).want(t, exitOK).read(t, &top)
	if top.Unknown != 0 || len(top.Keys) != 6 {
		t.Errorf("with a rule besides: %+v", top)
	}
	cli(t, with(flags, "top", "--rule=absent=sliding-window,5/1000h")...).want(t, exitOK).says(t, "0 keys near the limit", "login", "other")
}

// Counters of plans with a rate of their own are found by the name of the plan.
func TestTopOfPlans(t *testing.T) {
	_, flags := real(t)
	rules := "--rules=" + write(t, "rules.yaml", rulesFile)
	cli(t, with(flags, "set", "bob", "50", "--rule=login", "--plan=fast", rules)...).want(t, exitOK)
	cli(t, with(flags, "set", "acme", "999", "--rule=api", rules)...).want(t, exitOK)
	cli(t, with(flags, "set", "ann", "900", "--rule=api", "--plan=pro", rules)...).want(t, exitOK)
	var top topJSON
	cli(t, with(flags, "top", "--json", rules)...).want(t, exitOK).read(t, &top)
	got := map[string]int64{}
	for _, k := range top.Keys {
		got[k.Key+" "+k.Rule.Name] = k.Rule.Limit
	}
	// Which plan ann has, Redis does not know: by the rule as it is she is over.
	if fmt.Sprint(got) != fmt.Sprint(map[string]int64{"acme api": 1000, "ann api": 100, "bob login@fast": 50}) || top.Unknown != 0 {
		t.Errorf("%v, %+v", got, top)
	}
}

func TestQuarantined(t *testing.T) {
	s, flags := real(t)
	cli(t, with(flags, "quarantined")...).want(t, exitOK).says(t, "0 keys cannot be used. Looked at all of 0 keys of Redis")
	for _, rule := range []string{"token-bucket,10/1000h", "sliding-window,10/1000h", "fixed-window,10/1000h", "sliding-log,10/1000h"} {
		cli(t, with(flags, "set", "fine", "5", "--rule=api="+rule)...).want(t, exitOK)
	}
	cli(t, with(flags, "quarantined")...).want(t, exitOK).says(t, "0 keys cannot be used. Looked at all of 4 keys")
	do(t, s, "SET", "hl:1:{0}:s:3:api:k:somebody with a long name, whose counter another program has used as a place for something", "garbage")
	do(t, s, "LPUSH", "hl:1:{0}:f:3:api:k:list", "garbage")
	do(t, s, "ZADD", "hl:1:{0}:l:3:api:k:log", "1", "garbage")
	do(t, s, "SET", "hl:1:{0}:nodes:1", "garbage")
	o := cli(t, with(flags, "quarantined")...).want(t, exitFound)
	o.says(t, "4 keys cannot be used", "all of 8 keys of Redis: 7 counters", "hl:1:{0}:f:3:api:k:list", "WRONGTYPE", "not the members of a log", "not the state of a window", "hl:1:{0}:nodes:1", "DEL them")
	var q quarantinedJSON
	cli(t, with(flags, "quarantined", "--json")...).want(t, exitFound).read(t, &q)
	reasons := map[string]string{}
	for _, b := range q.Keys {
		reasons[b.Name] = b.Reason
	}
	if len(q.Keys) != 4 || reasons["hl:1:{0}:nodes:1"] != "WRONGTYPE" || reasons["hl:1:{0}:l:3:api:k:log"] != "not the members of a log" || !q.Complete || q.Total != 8 {
		t.Errorf("%+v", q)
	}
	// What is said to mend it does.
	for name := range reasons {
		do(t, s, "DEL", name)
	}
	cli(t, with(flags, "quarantined")...).want(t, exitOK)
}

func TestNodes(t *testing.T) {
	s, flags := real(t)
	cli(t, with(flags, "nodes")...).want(t, exitOK).says(t, "0 nodes of version 1 with 1 shards.")
	beat(t, s, 0, 1)
	introduce(t, s, "web-1/api[4711]", "web-2/api[4650]", "jobs-1/worker[12]")
	// These nodes stay for a day; a limiter's heartbeat is good for three seconds.
	o := cli(t, with(flags, "nodes")...).want(t, exitOK)
	o.out = strings.ReplaceAll(o.out, "  24h\n", " 2.9s\n")
	o.golden(t, "nodes", s)
	do(t, s, "DEL", "hl:1:{0}:nodes:1")
	beat(t, s, 0, 1)
	beat(t, s, 0, 64)
	var n nodesJSON
	cli(t, with(flags, "nodes", "--json")...).want(t, exitOK).read(t, &n)
	if n.Count != 1 || len(n.Nodes) != 1 || n.Nodes[0].Name != "node-1" || n.Nodes[0].Left <= 0 || n.Nodes[0].Left > 86400 || len(n.Layouts) != 2 || n.Layout != "version 1 with 1 shards" {
		t.Errorf("%+v", n)
	}
	cli(t, with(flags, "nodes")...).want(t, exitOK).says(t, "Others use version 1 with 64 shards")
	cli(t, with(flags, "nodes", "--prefix=hi")...).want(t, exitOK).says(t, `there are nodes with "hl": see --prefix`)
	do(t, s, "SET", "hl:1:{0}:nodes:1", "garbage")
	cli(t, with(flags, "nodes")...).want(t, exitFound).says(t, "hl:1:{0}:nodes:1")
}
