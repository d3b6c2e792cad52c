package rig

import (
	"slices"
	"testing"
	"time"
)

func TestPacer(t *testing.T) {
	p, sum := Pacer{}, 0
	for at := time.Millisecond; at <= time.Second; at += time.Millisecond {
		sum += p.Due(at, 1234)
	}
	if sum < 1233 || sum > 1234 {
		t.Errorf("%d checks are due in a second, at a rate of 1234", sum)
	}
	if n := p.Due(3*time.Second, 1000); n != 50 {
		t.Errorf("%d checks are due after a pause, want those of 50 ms", n)
	}
}

func TestMix(t *testing.T) {
	var m Mix
	if m.Rate() != 0 {
		t.Error("the rate of nothing is", m.Rate())
	}
	m.Add(3)
	m.Add(1)
	got := []int{m.Pick(0), m.Pick(2.9), m.Pick(3.1), m.Pick(m.Rate()), m.Pick(5)}
	if want := []int{0, 0, 1, 1, 2}; m.Rate() != 4 || !slices.Equal(got, want) {
		t.Errorf("rate %v, picked %v, want %v", m.Rate(), got, want)
	}
}

func TestStored(t *testing.T) {
	if n, err := LedgerTotal("hl:1:{0}:node:abc", "7 00ff 42 0 3"); n != 42 || err != nil || LedgerNode("hl:1:{0}:node:abc") != "abc" {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := LedgerTotal("k", "nonsense"); err == nil {
		t.Error("nonsense is taken for a ledger")
	}
	if list, err := Buckets("k", "w 1 2 1000 5:7:9 6:8:1"); err != nil || !slices.Equal(list, []Bucket{{5, 7, 9}, {6, 8, 1}}) {
		t.Errorf("%v, %v", list, err)
	}
	for _, bad := range []string{"", "f 1 2 3", "w 1 2 3 x"} {
		if _, err := Buckets("k", bad); err == nil {
			t.Errorf("%q is taken for a window", bad)
		}
	}
}

func TestPercentile(t *testing.T) {
	var took []time.Duration
	for i := range 1000 {
		took = append(took, time.Duration(i+1))
	}
	for permille, want := range map[int]time.Duration{0: 1, 500: 501, 999: 1000} {
		if got := Percentile(took, permille); got != want {
			t.Errorf("%d of 1,000 took %v at the most, want %v", permille, got, want)
		}
	}
}
