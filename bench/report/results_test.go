package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	res, err := parse(strings.NewReader(`
machine: 2 CPUs: some
procs: 2
some text: not a key
--- SKIP: BenchmarkOther
    redis.go:1: there is none
BenchmarkA/b-3/c-2   	 10	 5.5 ns/op	 0 allocs/op
BenchmarkOnlyAName
BenchmarkA/b-3/c-2   	 10	 6.5 ns/op	 1e3 keys/s
machine: a line of somebody else's log
BenchmarkB-2 1 7 ns/op
PASS
`))
	if err != nil || len(res.rows) != 2 || res.rows[1].name != "B" {
		t.Fatalf("%v, %+v", err, res)
	}
	if a, want := res.rows[0], "A/b-3/c [A b-3 c] map[allocs/op:[0] keys/s:[1000] ns/op:[5.5 6.5]]"; fmt.Sprint(a.name, " ", a.path, " ", a.values) != want {
		t.Errorf("%+v, want %s", a, want)
	}
	if want := "map[machine:2 CPUs: some procs:2]"; fmt.Sprint(res.config) != want {
		t.Errorf("%v, want %s", res.config, want)
	}
	for _, text := range []string{"BenchmarkA x 5 ns/op", "BenchmarkA 1 x ns/op"} {
		if _, err := parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
