package hybridlimit_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// backReferences bounds, for each package of the root module, how many references between
// its files run back up (see [backUp]). A package that is not listed must have none. Lower a
// bound when the number has fallen; do not raise one.
var backReferences = map[string]int{
	"internal/algorithm":  1,
	"internal/counter":    3,
	"internal/oracle":     3,
	"internal/redisstore": 7,
	"internal/table":      2,
}

// A package can be read file by file, from the top down, if the files can be listed so that
// each refers only to later ones. The references that spoil this must not become more.
func TestHouseBackReferences(t *testing.T) {
	for _, dir := range packages(t) {
		refs := fileReferences(sources(t, dir, false))
		back := backUp(refs)
		switch most := backReferences[dir]; {
		case len(back) > most:
			t.Errorf("%s: %d references between files run back up, and at most %d may:\n\t%s", dir, len(back), most, strings.Join(back, "\n\t"))
		case len(back) < most:
			t.Logf("%s: %d references between files run back up: lower its bound in backReferences, which is %d", dir, len(back), most)
		}
	}
}

func TestHouseBackReferencesAreFound(t *testing.T) {
	chain := references{"a": {"d": true}, "b": {"a": true, "c": true}, "c": {}, "d": {"c": true}}
	if back := backUp(chain); len(back) != 0 {
		t.Errorf("b, a, d, c is an order, and yet: %v", back)
	}
	chain["d"]["b"] = true // closes a ring of three
	if back := backUp(chain); len(back) != 1 {
		t.Errorf("one reference is too many, and these run back: %v", back)
	}
}

// references maps each file of a package to the files in which the names are declared that
// it uses.
type references map[string]map[string]bool

// fileReferences type-checks a package without what it imports: the package's own names,
// fields and methods are found as far as no imported type stands between.
func fileReferences(files []source) references {
	refs := references{}
	if len(files) == 0 {
		return refs
	}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.File)
		refs[filepath.Base(f.path)] = map[string]bool{}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: emptyPackages{}, Error: func(error) {}}
	pkg, _ := cfg.Check("p", files[0].fset, parsed, info) // the errors are about what is imported
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() || obj.Parent() != nil && obj.Parent() != pkg.Scope() {
			continue // of another package, or local to a function
		}
		from, to := fileOf(files[0].fset, id.Pos()), fileOf(files[0].fset, obj.Pos())
		if from != to {
			refs[from][to] = true
		}
	}
	return refs
}

func fileOf(fset *token.FileSet, p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }

// emptyPackages imports every package as one without names.
type emptyPackages struct{}

var version = regexp.MustCompile(`^v[0-9]+$`)

func (emptyPackages) Import(name string) (*types.Package, error) {
	base := path.Base(name)
	if version.MatchString(base) {
		base = path.Base(path.Dir(name))
	}
	p := types.NewPackage(name, strings.TrimPrefix(base, "go-"))
	p.MarkComplete()
	return p, nil
}

// backUp returns the references that run back up, as text, when the files are listed in the
// order of inOrder.
func backUp(refs references) (back []string) {
	order := inOrder(refs)
	for i, from := range order {
		for _, to := range order[:i] {
			if refs[from][to] {
				back = append(back, from+" refers back to "+to)
			}
		}
	}
	return back
}

// inOrder lists files so that few references run back up. Files that no other refers to go
// to the front, again and again, and those that refer to no other to the end, so that none
// runs back if there is such an order. For the others the best order is hard to find: each
// file in turn moves to where the fewest run back, until no move helps.
func inOrder(refs references) []string {
	left := slices.Sorted(maps.Keys(refs))
	var front, end []string
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Clone(left) {
			others := slices.DeleteFunc(slices.Clone(left), func(f string) bool { return f == file })
			if !refersToAny(refs, others, []string{file}) {
				front, left, moved = append(front, file), others, true
			} else if !refersToAny(refs, []string{file}, others) {
				end, left, moved = append(end, file), others, true
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Clone(left) {
			moved = moveBest(refs, left, file) || moved
		}
	}
	slices.Reverse(end)
	return slices.Concat(front, left, end)
}

func refersToAny(refs references, from, to []string) bool {
	return slices.ContainsFunc(from, func(f string) bool {
		return slices.ContainsFunc(to, func(t string) bool { return refs[f][t] })
	})
}

// moveBest moves a file to where it has the fewest references that run back, and reports
// whether these are fewer than before.
func moveBest(refs references, order []string, file string) (better bool) {
	at := slices.Index(order, file)
	others := slices.Delete(slices.Clone(order), at, at+1)
	costs := make([]int, len(order)) // by position
	for i := range costs {
		for k, other := range others {
			if k < i && refs[file][other] || k >= i && refs[other][file] {
				costs[i]++
			}
		}
	}
	best := slices.Index(costs, slices.Min(costs))
	if costs[best] == costs[at] {
		return false
	}
	copy(order, slices.Insert(others, best, file))
	return true
}
