package doctor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestServerIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		info map[string]string
		want Server
	}{
		"Redis": {
			map[string]string{"redis_version": "7.0.15", "role": "master"},
			Server{Product: "Redis", Version: "7.0.15", Role: "master", Tested: true, Known: "This version is tested."},
		},
		"another patch": {
			map[string]string{"redis_version": "8.0.9", "server_name": "redis", "role": "slave"},
			Server{Product: "Redis", Version: "8.0.9", Role: "replica", Tested: true, Known: "Redis 8.0.2 of the same series is tested."},
		},
		"Valkey, which says what Redis it is like": {
			map[string]string{"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.1"},
			Server{Product: "Valkey", Version: "8.1.1", Tested: true, Known: "This version is tested."},
		},
		"something differs": {
			map[string]string{"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.7"},
			Server{Product: "Valkey", Version: "9.1.7", Tested: true, Known: "Valkey 9.1.2 of the same series is tested. Messages of 16 kB or more do not count against client-output-buffer-limit."},
		},
		"garbage": {
			map[string]string{"redis_version": "8"},
			Server{Product: "Redis", Version: "8", Known: "This version is not tested. Tested are Redis 7.0.15 and 8.0.2, Valkey 8.1.1 and 9.1.2."},
		},
		"silence": {
			nil,
			Server{Product: "Redis", Known: "The server does not say its version. Tested are Redis 7.0.15 and 8.0.2, Valkey 8.1.1 and 9.1.2."},
		},
	} {
		c.want.Name = "redis:6379"
		if got := (&facts{name: "redis:6379", info: c.info}).server(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The documents, the script that fetches servers and doctor name the same versions.
//
// Fault 120: what was tested is written down.
func TestVersionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Versions\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var rows, want []string
	for _, m := range regexp.MustCompile(`(?m)^\| (Redis|Valkey) \| ([0-9.]+) \|`).FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1]+" "+m[2])
	}
	var names []string
	for _, v := range tested {
		want = append(want, v.product+" "+v.number)
		names = append(names, strings.ToLower(v.product)+"-"+series(v.number))
	}
	if !slices.Equal(rows, want) {
		t.Errorf("docs/redis.md has %q, doctor %q", rows, want)
	}
	script, err := os.ReadFile("../../../../.ci/servers")
	if err != nil {
		t.Fatal(err)
	}
	// The first one is installed on machines that test.
	if all := "all='" + strings.Join(names[1:], " ") + "'\n"; !strings.Contains(string(script), all) {
		t.Errorf(".ci/servers has no line %q", all)
	}
}
