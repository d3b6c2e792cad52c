package programs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both do the same jobs in the same order, and not faster than the limit. The second one counts in Redis.
func TestPrograms(t *testing.T) {
	const jobs = 16
	dir := t.TempDir()
	for _, name := range []string{"before", "after"} {
		program := filepath.Join(dir, name)
		if out, err := exec.Command("go", "build", "-o", program, "./"+name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		r := miniredis.RunT(t)
		var want strings.Builder
		for i := range jobs {
			if i == jobs-2 {
				r.Push("jobs", "slow down")
			}
			r.Push("jobs", fmt.Sprint(i))
			fmt.Fprintln(&want, i)
		}
		want.WriteString("done, at 10 a second\n")
		begun := time.Now()
		out, err := exec.Command(program, r.Addr()).Output()
		took := time.Since(begun)
		if err != nil || string(out) != want.String() {
			t.Errorf("%s: %v, %s, want %s", name, err, out, want.String())
		}
		// 4 jobs at 20 a second and 2 at 10: 400 ms. On a busy machine it is more.
		if took < 390*time.Millisecond {
			t.Errorf("%s took %v", name, took)
		}
		if shares := slices.ContainsFunc(r.Keys(), func(key string) bool { return strings.HasPrefix(key, "hl") }); shares != (name == "after") {
			t.Errorf("%s: %v in Redis", name, r.Keys())
		}
	}
}
