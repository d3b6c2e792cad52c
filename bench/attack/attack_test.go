package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// asked is a check of the attacker.
type asked struct {
	at    time.Duration
	units int64
}

// attacks plays the attack of a row against nobody, and returns its checks by key.
func attacks(s scenario) map[string][]asked {
	s = s.withDefaults()
	checks, now := map[string][]asked{}, time.Duration(0)
	a := newAttacker(s, 1, rand.New(rand.NewPCG(1, 1)), func(key string, units int64) {
		checks[key] = append(checks[key], asked{now, units})
	})
	for ; now < never; now = a.next(now) {
		a.act(now)
	}
	return checks
}

// An attack has as many keys as its rate says, within its time, in each round anew.
func TestAttacker(t *testing.T) {
	for _, s := range []scenario{
		{rule: minute, attack: attack{rate: 20, checks: 1, units: 10}},
		{rule: minute, attack: attack{rate: 20, length: 10 * time.Second, checks: 10, units: 1}},
		{rule: minute, attack: twice(20, 10*time.Second, 200*time.Millisecond)},
		{rule: day, attack: attack{rate: 0.01, checks: 1, units: 10}},
	} {
		s = s.withDefaults()
		checks, length := attacks(s), s.attack.length
		if length == 0 {
			length = s.pace
		}
		if want := 2 * int(s.attack.rate*length.Seconds()); len(checks) != want {
			t.Errorf("%+v: %d keys, want %d", s.attack, len(checks), want)
		}
		for key, list := range checks {
			if len(list) != s.attack.checks {
				t.Fatalf("%s: %d checks, want %d", key, len(list), s.attack.checks)
			}
			begin := s.lead()
			if strings.HasPrefix(key, "attack/1/") {
				begin += s.pace
			}
			for _, c := range list {
				if c.at < begin || c.at > begin+length+time.Second || c.units != s.attack.units {
					t.Fatalf("%s: %+v, want it within %v after %v", key, c, length, begin)
				}
			}
			if last := list[len(list)-1].at - list[0].at; last < s.attack.apart || last > s.attack.apart+50*time.Millisecond {
				t.Fatalf("%s: the checks come within %v, want %v", key, last, s.attack.apart)
			}
		}
	}
}
