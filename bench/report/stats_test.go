package main

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		list         []float64
		want, spread float64
	}{
		{[]float64{7}, 7, 0},
		{[]float64{3, 1, 2}, 2, 0.25},
		{[]float64{4, 1, 3, 2}, 2.5, 0.3},
		{[]float64{1, 1, 1, 1, 1, 1, 1, 900}, 1, 0}, // a disturbed run moves nothing
		{[]float64{0, 0}, 0, 0},
	} {
		before := append([]float64{}, c.list...)
		if got := median(c.list); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.list, got, c.want)
		}
		if got := spread(c.list); math.Abs(got-c.spread) > 1e-9 {
			t.Errorf("spread of %v: %v, want %v", c.list, got, c.spread)
		}
		for i := range before {
			if c.list[i] != before[i] {
				t.Fatalf("%v was reordered to %v", before, c.list)
			}
		}
	}
}

func TestRatio(t *testing.T) {
	if v, ok := ratio(3, 2); v != 1.5 || !ok {
		t.Error(v, ok)
	}
	for _, c := range [][2]float64{{1, 0}, {math.NaN(), 1}, {1, math.NaN()}} {
		if v, ok := ratio(c[0], c[1]); ok {
			t.Errorf("%v / %v = %v", c[0], c[1], v)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1.00", 0.5: "0.50", 12.34: "12.3", 99.97: "100", 123.4: "123", 1234.5: "1,234", 1e6: "1,000,000", -1234: "-1,234", 0.0012: "0.0012", 9.999: "10.0",
	} {
		if got := figure(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
