package hybridlimit_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rules of the house: what a reviewer would otherwise have to look for.

const module = "github.com/hybridlimit/hybridlimit"

// mayImport names, for each package of the root module, the others that it
// may be built on. Arrows point one way: words and clocks at the bottom, the
// two halves that know nothing of each other, and what joins them.
var mayImport = map[string][]string{
	// Examples show what users write.
	"examples/http":          {"limit", "hybrid", "adapter/httplimit", "examples/internal/demo"},
	"examples/limits":        {"limit", "hybrid"},
	"examples/login":         {"limit", "hybrid", "adapter/httplimit", "examples/internal/demo"},
	"examples/quota":         {"clock", "limit", "local"},
	"examples/plans":         {"limit", "hybrid", "adapter/httplimit", "examples/internal/demo"},
	"examples/allow":         {"limit", "hybrid"},
	"examples/replicas":      {"limit", "hybrid", "adapter/httplimit", "examples/internal/demo"},
	"examples/tokens":        {"limit", "hybrid", "adapter/httplimit", "examples/internal/demo"},
	"examples/worker":        {"limit", "hybrid", "examples/internal/demo"},
	"examples/internal/demo": {"limit", "hybrid", "internal/redistest"},
	"internal/programtest":   {}, // runs programs of the documentation

	"adapter/adminlimit": {"limit", "clock", "hybrid", "internal/escape", "internal/inside", "internal/redisstore", "adapter/internal/undecided"},
	"adapter/httplimit":  {"limit", "clock", "internal/clocks", "internal/address", "internal/arith", "internal/escape", "internal/inside", "adapter/internal/ranges", "adapter/internal/settle", "adapter/internal/undecided"},
	// What adapters share; those with dependencies of their own are modules of their own.
	"adapter/internal/figures":   {"hybrid", "internal/inside"},
	"adapter/internal/ranges":    {"internal/address"},
	"adapter/internal/settle":    {"limit"},
	"adapter/internal/undecided": {"limit", "clock", "internal/clocks", "internal/inside"},

	"compat/redisrate": {"limit", "hybrid", "remote", "internal/arith"},

	".":                   {},
	"limit":               {"internal/arith", "internal/escape"},
	"clock":               {},
	"internal/clocks":     {"clock"},
	"local":               {"limit", "clock", "internal/arith", "internal/clocks", "internal/counter", "internal/decision", "internal/table", "internal/waitqueue"},
	"remote":              {"limit", "clock", "internal/arith", "internal/decision", "internal/escape", "internal/redisstore", "internal/report"},
	"hybrid":              {"limit", "clock", "internal/arith", "internal/clocks", "internal/counter", "internal/decision", "internal/escape", "internal/inside", "internal/reconcile", "internal/report", "internal/table", "internal/tally", "internal/waitqueue", "internal/redisstore"},
	"hybridtest":          {"limit", "clock", "hybrid"},
	"internal/address":    {},
	"internal/algorithm":  {"limit", "internal/arith", "internal/decision", "internal/report"},
	"internal/arith":      {},
	"internal/counter":    {"limit", "internal/algorithm", "internal/arith", "internal/decision", "internal/report", "internal/tally"},
	"internal/decision":   {"limit", "clock", "internal/clocks", "internal/arith"},
	"internal/escape":     {},
	"internal/inside":     {"limit", "internal/tally"},
	"internal/inspect":    {"limit", "internal/arith", "internal/decision", "internal/escape", "internal/redisstore"},
	"internal/keyhash":    {},
	"internal/limittest":  {"limit", "clock", "internal/arith"},
	"internal/oracle":     {},
	"internal/reconcile":  {"limit", "internal/arith", "internal/counter", "internal/inside", "internal/redisstore", "internal/report"},
	"internal/redisstore": {"clock", "limit", "internal/arith", "internal/decision", "internal/escape", "internal/report"},
	"internal/report":     {"limit", "internal/arith"},
	"internal/redistest":  {"clock"},
	"internal/rig":        {"clock", "hybrid"}, // of programs in other modules
	"internal/rulenames":  {"limit", "internal/arith"},
	"internal/sim":        {},
	"internal/table":      {"limit", "clock", "internal/clocks", "internal/algorithm", "internal/arith", "internal/counter", "internal/decision", "internal/keyhash", "internal/report", "internal/rulenames", "internal/tally"},
	"internal/tally":      {"limit", "internal/arith"},
	"internal/waitqueue":  {"limit", "internal/arith", "internal/counter", "internal/decision"},
}

// forTests are packages that any test may be built on.
var forTests = []string{"internal/redistest", "internal/programtest", "internal/limittest", "internal/oracle"}

// testsMayImport names what the tests of a package may be built on besides.
var testsMayImport = map[string][]string{
	"hybrid":             {"remote"}, // which counts in the same keys
	"hybridtest":         {"internal/inside"},
	"internal/arith":     {"limit"},
	"internal/inside":    {"hybrid", "local"}, // what has an inside and what has none
	"internal/inspect":   {"remote"},
	"internal/sim":       {"limit", "internal/arith", "internal/counter", "internal/reconcile", "internal/redisstore", "internal/report"},
	"adapter/adminlimit": {"hybridtest"},
	"compat/redisrate":   {"clock", "hybridtest"},
	"adapter/httplimit":  {"local", "remote", "hybrid", "hybridtest"}, // it takes any limiter, and is tested with these
}

// outside names what is not ours and may be imported by what is not a test.
var outside = map[string][]string{
	"examples/http":          {"github.com/redis/go-redis/v9"},
	"examples/login":         {"github.com/redis/go-redis/v9"},
	"examples/allow":         {"github.com/redis/go-redis/v9"},
	"examples/replicas":      {"github.com/redis/go-redis/v9"},
	"examples/tokens":        {"github.com/redis/go-redis/v9"},
	"examples/worker":        {"github.com/redis/go-redis/v9"},
	"examples/internal/demo": {"github.com/alicebob/miniredis/v2"},

	"compat/redisrate":    {"github.com/redis/go-redis/v9"},
	"remote":              {"github.com/redis/go-redis/v9"},
	"hybrid":              {"github.com/redis/go-redis/v9", "golang.org/x/sync"},
	"hybridtest":          {"github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2"},
	"internal/inspect":    {"github.com/redis/go-redis/v9"},
	"internal/redisstore": {"github.com/redis/go-redis/v9"},
	"internal/redistest":  {"github.com/redis/go-redis/v9"}, // a hook of its client
	"internal/rig":        {"github.com/redis/go-redis/v9"},
	"internal/table":      {"github.com/dgraph-io/ristretto/v2"},
}

// topLevel is all that may lie in the root directory, besides dot-files.
var topLevel = []string{
	"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "go.mod", "go.sum", "go.work", "go.work.sum",
	"doc.go", "hybrid_test.go", "house_test.go", "house_api_test.go", "house_docs_test.go", "house_examples_test.go",
	"house_faults_test.go", "house_keys_test.go", "house_words_test.go",
	"limit", "clock", "local", "remote", "hybrid", "hybridtest", "internal", "adapter", "bench", "cmd", "compat", "deploy", "docs", "examples",
}

// packages returns the directories of the root module that hold Go files.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if p != "." {
			_, err := os.Stat(filepath.Join(p, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return fs.SkipDir // another module, or none of Go's business
			}
		}
		if files, _ := filepath.Glob(filepath.Join(p, "*.go")); len(files) > 0 {
			dirs = append(dirs, filepath.ToSlash(p))
		}
		return nil
	})
	if err != nil || len(dirs) < 6 {
		t.Fatalf("packages %v, %v", dirs, err)
	}
	return dirs
}

// source is a parsed file.
type source struct {
	*ast.File
	path string
	fset *token.FileSet
}

func (s source) at(n ast.Node) token.Position { return s.fset.Position(n.Pos()) }

// sources parses the files of a directory, tests or all others.
func sources(t *testing.T, dir string, tests bool) (out []source) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") != tests {
			continue
		}
		parsed, err := parser.ParseFile(fset, f, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, source{parsed, f, fset})
	}
	return out
}

func within(list []string, pkg string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
}

func TestHouseImportLayers(t *testing.T) {
	for _, dir := range packages(t) {
		allowed, known := mayImport[dir]
		if !known {
			t.Errorf("package %s is new: say in mayImport what it may be built on", dir)
			continue
		}
		pkg, err := build.ImportDir(dir, 0)
		if err != nil && dir != "." {
			t.Fatal(err)
		}
		for _, imp := range pkg.Imports {
			switch ours, found := strings.CutPrefix(imp, module+"/"); {
			case found && !slices.Contains(allowed, ours):
				t.Errorf("%s imports %s", dir, ours)
			case !found && strings.Contains(imp, ".") && !within(outside[dir], imp):
				t.Errorf("%s imports %s", dir, imp)
			}
		}
		// The lower layers' tests must not lean on the upper ones either.
		for _, imp := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
			ours, found := strings.CutPrefix(imp, module+"/")
			if found && dir != "." && ours != dir && !slices.Contains(slices.Concat(forTests, allowed, testsMayImport[dir]), ours) {
				t.Errorf("the tests of %s import %s", dir, ours)
			}
		}
	}
}

func TestHousePackageDocs(t *testing.T) {
	for _, dir := range packages(t) {
		docs := 0
		for _, f := range sources(t, dir, false) {
			subject := "Package " + f.Name.Name + " "
			if f.Name.Name == "main" {
				subject = "Command " + filepath.Base(dir) + " "
			}
			if f.Doc != nil && strings.HasPrefix(f.Doc.Text(), subject) {
				docs++
			}
		}
		if docs != 1 {
			t.Errorf("%s has %d package docs, want 1", dir, docs)
		}
	}
}

func TestHouseExportedNamesAreDocumented(t *testing.T) {
	for _, dir := range packages(t) {
		for _, f := range sources(t, dir, false) {
			for _, d := range f.Decls {
				for _, name := range undocumented(d) {
					t.Errorf("%s: %s has no comment", f.at(name), name.Name)
				}
			}
		}
	}
}

// undocumented returns the exported names that a declaration introduces
// without a word. A comment on a group of constants or variables is enough
// for all of them, as godoc shows them together.
func undocumented(d ast.Decl) (bare []*ast.Ident) {
	add := func(doc bool, names ...*ast.Ident) {
		for _, n := range names {
			if n.IsExported() && !doc {
				bare = append(bare, n)
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || ast.IsExported(receiver(d)) {
			// String, Error and Unwrap say all by their names.
			add(d.Doc != nil || d.Recv != nil && slices.Contains([]string{"Error", "Unwrap"}, d.Name.Name), d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				add(d.Doc != nil || s.Doc != nil, s.Name)
				if i, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
					for _, m := range i.Methods.List {
						// One method may be described by its interface.
						add(m.Doc != nil || m.Comment != nil || len(i.Methods.List) == 1, m.Names...)
					}
				}
			case *ast.ValueSpec:
				add(d.Doc != nil || s.Doc != nil || s.Comment != nil, s.Names...)
			}
		}
	}
	return bare
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if i, ok := t.(*ast.IndexExpr); ok {
		t = i.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// Time enters through package clock and is then an argument.
func TestHouseTimeComesFromClock(t *testing.T) {
	for _, dir := range packages(t) {
		if dir == "clock" || dir == "internal/clocks" {
			continue
		}
		for _, f := range sources(t, dir, false) {
			ast.Inspect(f.File, func(n ast.Node) bool {
				if is(n, "time", "Now", "Since", "Until") {
					t.Errorf("%s: asks the system for the time; package clock does that", f.at(n))
				}
				return true
			})
		}
	}
}

// is reports whether n is one of a package's names.
func is(n ast.Node, pkg string, names ...string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && slices.Contains(names, s.Sel.Name)
}

// A test that sleeps is slow on a good day and flaky on a bad one. Sleeping is
// for synctest bubbles, whose time costs nothing, and for helpers that poll.
func TestHouseNoSleepingTests(t *testing.T) {
	for _, dir := range packages(t) {
		for _, f := range sources(t, dir, true) {
			bubbles := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || isPoller(fn.Name.Name) || bubbles && !strings.HasPrefix(fn.Name.Name, "Test") {
					continue // the helpers of a bubble are called inside of it
				}
				for _, n := range sleeps(fn) {
					t.Errorf("%s: %s sleeps outside of a bubble", f.at(n), fn.Name.Name)
				}
			}
		}
	}
}

func isPoller(name string) bool {
	for _, p := range []string{"eventually", "until", "await", "poll"} {
		if strings.HasPrefix(strings.ToLower(name), p) {
			return true
		}
	}
	return false
}

// sleeps returns the calls of time.Sleep that are not in a function given to
// synctest.Test or to a helper that says it makes a bubble.
func sleeps(fn *ast.FuncDecl) (found []ast.Node) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && makesBubble(call.Fun) {
			return false
		}
		if is(n, "time", "Sleep") {
			found = append(found, n)
		}
		return true
	})
	return found
}

func makesBubble(fun ast.Expr) bool {
	id, ok := fun.(*ast.Ident)
	return is(fun, "synctest", "Test") || ok && strings.Contains(id.Name, "Bubble")
}

func TestHouseNoReplaceInGoMod(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == "replace" || slices.Contains(f, "=>") {
			t.Errorf("go.mod: %s: a replaced module is not what users get", strings.TrimSpace(line))
		}
	}
}

func TestHouseTopLevel(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s does not belong into the root directory", path.Join(".", e.Name()))
		}
	}
}

// most is how many lines docs/api may have for a public package: names, methods and fields. A user
// reads all of them: what only the limiters need is internal.
var most = map[string]int{"local": 29, "remote": 28, "limit": 98, "clock": 14, "hybrid": 130, "hybridtest": 17, "adapter/adminlimit": 19, "adapter/httplimit": 83, "compat/redisrate": 23}

func TestHouseFewExportedNames(t *testing.T) {
	for _, dir := range packages(t) {
		if bound, public := most[dir]; public {
			if n := len(api(t, dir)); n > bound || n == 0 {
				t.Errorf("%s exports %d names, at most %d are wanted", dir, n, bound)
			}
		} else if dir != "." && !within([]string{"internal", "examples", "adapter/internal"}, dir) {
			t.Errorf("%s is public: say in most how many names it may export", dir)
		}
	}
}

// Users can neither read about nor name a type of an internal package. The one door is for our adapters:
// hybrid.Limiter.Inside.
func TestHouseSignaturesNameNoInternalTypes(t *testing.T) {
	for dir := range most {
		for _, f := range sources(t, dir, false) {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() && fn.Name.Name != "Inside" && (fn.Recv == nil || ast.IsExported(receiver(fn))) &&
					namesInternal(f, fn.Type) {
					t.Errorf("%s: the signature of %s has a type of an internal package", f.at(fn), fn.Name.Name)
				}
			}
		}
	}
}

// namesInternal reports whether a signature has a type of an internal package of ours.
func namesInternal(f source, signature *ast.FuncType) (found bool) {
	ast.Inspect(signature, func(n ast.Node) bool {
		for _, imp := range f.Imports {
			if at := strings.Trim(imp.Path.Value, `"`); strings.HasPrefix(at, module+"/internal/") {
				if s, ok := n.(*ast.SelectorExpr); ok && is(n, path.Base(at), s.Sel.Name) {
					found = true
				}
			}
		}
		return true
	})
	return found
}
