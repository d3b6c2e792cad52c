package main

import (
	"slices"
	"strings"
	"testing"
)

func mustParse(t *testing.T, text string) *results {
	t.Helper()
	res, err := parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestParse(t *testing.T) {
	res := mustParse(t, `
machine: 2 CPUs: some
procs: 2
cpu: A
some text: not a key
--- SKIP: BenchmarkOther
    redis.go:1: there is none
BenchmarkA/b-3/c-2   	 10	 5.5 ns/op	 0 allocs/op
BenchmarkOnlyAName
BenchmarkA/b-3/c-2   	 10	 6.5 ns/op	 1e3 keys/s
machine: a line of somebody else's log
BenchmarkB-2 1 7 ns/op
PASS
`)
	if res.config["machine"] != "2 CPUs: some" || res.config["cpu"] != "A" || res.config["some text"] != "" {
		t.Errorf("%q", res.config)
	}
	if len(res.rows) != 2 || res.rows[0].name != "A/b-3/c" || res.rows[1].name != "B" {
		t.Fatalf("%+v", res.rows)
	}
	a := res.rows[0]
	if !slices.Equal(a.path, []string{"A", "b-3", "c"}) || !slices.Equal(a.values["ns/op"], []float64{5.5, 6.5}) || !slices.Equal(a.values["keys/s"], []float64{1000}) {
		t.Errorf("%+v", a)
	}
	if !slices.Equal(a.units, []string{"ns/op", "allocs/op", "keys/s"}) {
		t.Errorf("units %q", a.units)
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{"BenchmarkA x 5 ns/op", "BenchmarkA 1 x ns/op"} {
		if _, err := parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// The number of processors goes, a number that belongs to the name stays.
func TestProcs(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"BenchmarkA/batch-100-8 1 5 ns/op\nBenchmarkB-8 1 5 ns/op", "A/batch-100"},
		{"procs: 1\nBenchmarkA/batch-100 1 5 ns/op", "A/batch-100"},
		{"procs: 4\nBenchmarkA/batch-100-4 1 5 ns/op", "A/batch-100"},
		{"BenchmarkA/batch-100 1 5 ns/op\nBenchmarkB 1 5 ns/op", "A/batch-100"},
		{"BenchmarkA/batch-100 1 5 ns/op\nBenchmarkA/batch-10 1 5 ns/op", "A/batch-100"},
		{"BenchmarkA/redis-rate 1 5 ns/op", "A/redis-rate"},
	} {
		if got := mustParse(t, c.text).rows[0].name; got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestKinds(t *testing.T) {
	for limiter, want := range map[string]kind{
		"hybrid": ours, "hybrid-synced": ours, "local": ours, "local-coarse": ours, "floor": floor, "floor-coarse": floor, "xtime-single": single, "xtime-map": keyed,
		"ulule": keyed, "some-new-one": keyed, "redis_rate": distant, "redis-rate": distant, "uber-map": keyed, "throttled-redis": distant, "remote": distant,
	} {
		if got := kindOf(limiter); got != want {
			t.Errorf("%s: %v, want %v", limiter, got, want)
		}
	}
}

func TestLoads(t *testing.T) {
	list := mustParse(t, `
BenchmarkAllow/a/65536/uniform/serial 1 5 ns/op
BenchmarkAllow/a/1000000/uniform/serial 1 5 ns/op
BenchmarkAllow/a/uniform/serial 1 5 ns/op
BenchmarkAllow/a/65536/zipf/serial 1 5 ns/op
BenchmarkAllow/a/1/hot/serial 1 5 ns/op
BenchmarkAllow/a/1/uniform/serial 1 5 ns/op
BenchmarkAllow/a/hot/parallel 1 5 ns/op
BenchmarkAllow/a 1 5 ns/op
BenchmarkAllow/a/b/c 1 5 ns/op
BenchmarkAllow/a/untimed/serial 1 5 things
`).checks("Allow")
	var got []string
	for _, c := range list {
		word := c.load + " " + c.mode
		if c.isUniform() {
			word += " uniform"
		}
		if c.isHot() {
			word += " hot"
		}
		got = append(got, word)
	}
	want := []string{
		"65536/uniform serial uniform", "1000000/uniform serial", "uniform serial uniform", "65536/zipf serial", "1/hot serial hot", "1/uniform serial hot", "hot parallel hot",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q,\nwant %q", got, want)
	}
}
