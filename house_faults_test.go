package hybridlimit_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The table of faults and the tests that it names must not drift apart.

const (
	faultTable = "hybrid/FAULTS.md"
	faults     = 120
)

var (
	// A row that is planned says what is to happen, which no test shows yet.
	noFaultTest = regexp.MustCompile(`^(Planned|Does not apply): `)

	faultRow  = regexp.MustCompile(`^\| (\d+) \|.*\| ([^|]+) \|$`)
	faultTest = regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	faultDoc  = regexp.MustCompile(`^// Faults? ([0-9, ]+):`)
)

// faultRows returns the tests that the table names, by number. A row without
// tests has to say why there are none.
func faultRows(t *testing.T) map[int][]string {
	t.Helper()
	text, err := os.ReadFile(faultTable)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[int][]string{}
	for line := range strings.Lines(string(text)) {
		m := faultRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, _ := strconv.Atoi(m[1])
		if _, twice := rows[n]; twice || n < 1 || n > faults {
			t.Errorf("%s: there should be no second row %d", faultTable, n)
		}
		rows[n] = []string{}
		for _, name := range faultTest.FindAllStringSubmatch(m[2], -1) {
			rows[n] = append(rows[n], name[1]+"."+name[2])
		}
		if (len(rows[n]) == 0) != noFaultTest.MatchString(m[2]) {
			t.Errorf("%s: row %d names tests, or says why there are none", faultTable, n)
		}
	}
	return rows
}

// faultModules are modules of their own whose tests show faults, too.
var faultModules = []string{"adapter/grpclimit", "adapter/httptests", "adapter/rules", "cmd/hybridlimit", "cmd/hybridlimit/internal/doctor", "cmd/hybridlimit/internal/server/resp"}

// faultTests returns every test of the root module and of faultModules, and the faults that
// its comment names.
func faultTests(t *testing.T) map[string][]int {
	t.Helper()
	tests := map[string][]int{}
	for _, dir := range slices.Concat(packages(t), faultModules) {
		pkg := filepath.Base(dir)
		if dir == "." {
			pkg = filepath.Base(module)
		}
		for _, f := range sources(t, dir, true) {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
					tests[pkg+"."+fn.Name.Name] = faultsOf(fn.Doc)
				}
			}
		}
	}
	return tests
}

func faultsOf(doc *ast.CommentGroup) (numbers []int) {
	if doc == nil {
		return nil
	}
	for _, c := range doc.List {
		m := faultDoc.FindStringSubmatch(c.Text)
		if m == nil {
			continue
		}
		for s := range strings.SplitSeq(m[1], ",") {
			n, _ := strconv.Atoi(strings.TrimSpace(s))
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func TestHouseFaultsAreShown(t *testing.T) {
	rows, tests := faultRows(t), faultTests(t)
	for n := 1; n <= faults; n++ {
		if _, ok := rows[n]; !ok {
			t.Errorf("%s has no row %d", faultTable, n)
		}
		for _, name := range rows[n] {
			says, ok := tests[name]
			// The simulator shows too many of them to name each.
			simulator := strings.HasPrefix(name, "sim.TestSim")
			switch {
			case !ok && !simulator:
				t.Errorf("%s: row %d names %s, which is not there", faultTable, n, name)
			case !simulator && !slices.Contains(says, n):
				t.Errorf("%s does not say that it shows fault %d, as %s does", name, n, faultTable)
			}
		}
	}
	for name, says := range tests {
		for _, n := range says {
			if !slices.Contains(rows[n], name) {
				t.Errorf("%s says that it shows fault %d, and %s does not", name, n, faultTable)
			}
		}
	}
}

// A package whose tests do not look for goroutines left behind will have some.
//
// Fault 69: every test package ends with goleak.
func TestHouseNoGoroutineStays(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if p != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		tests := sources(t, p, true)
		if len(tests) == 0 {
			return nil
		}
		checked++
		looks := slices.ContainsFunc(tests, func(f source) bool {
			found := false
			ast.Inspect(f.File, func(n ast.Node) bool {
				found = found || is(n, "goleak", "VerifyTestMain")
				return !found
			})
			return found
		})
		if !looks {
			t.Errorf("the tests of %s do not call goleak.VerifyTestMain", p)
		}
		return nil
	})
	if err != nil || checked < 9 {
		t.Errorf("%d packages with tests, %v", checked, err)
	}
}

// Whatever the order, the number of processors and the repetition, tests pass.
//
// Fault 70: CI runs them so.
func TestHouseCI(t *testing.T) {
	script, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-race", "-shuffle=on", "-cpu 1,2,8", "-count="} {
		if !strings.Contains(string(script), flag) {
			t.Errorf(".ci/run does not run tests with %s", flag)
		}
	}
}

// Tests run on one of the other servers each day, and on demand on each of them.
//
// Fault 120: CI does so.
func TestHouseCITestsOtherServers(t *testing.T) {
	for file, part := range map[string]string{".ci/run": ".ci/servers-test -quick", ".ci/servers-test": ".ci/servers "} {
		if !strings.Contains(read(t, file), part) {
			t.Errorf("%s does not run %s", file, part)
		}
	}
}
