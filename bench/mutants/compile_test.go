package main

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant that does not compile tests nothing. Each is type-checked by itself: its package
// must have no problem that it does not have without the mutant. What is imported is taken to
// be empty, in both.
func TestMutantsCompile(t *testing.T) {
	const root = "../.."
	sound := map[string]map[string]bool{} // by directory: the problems without a mutant
	for _, m := range table() {
		if !strings.HasSuffix(m.file, ".go") {
			continue
		}
		dir := filepath.Join(root, path.Dir(m.file))
		if sound[dir] == nil {
			sound[dir] = problems(t, dir, "", "")
		}
		text, err := m.mutate(root)
		if err != nil {
			t.Error(err)
			continue
		}
		for what := range problems(t, dir, path.Base(m.file), text) {
			if !sound[dir][what] {
				t.Errorf("%s does not compile: %s", m.name, what)
			}
		}
	}
}

// problems type-checks a package with the given text in place of one of its files.
func problems(t *testing.T, dir, file, text string) map[string]bool {
	t.Helper()
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	found, fset := map[string]bool{}, token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		var src any
		if name == file {
			src = text
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), src, parser.SkipObjectResolution)
		if err != nil {
			found[err.Error()] = true
			continue
		}
		files = append(files, f)
	}
	cfg := types.Config{Importer: nothing{}, Error: func(err error) { found[err.(types.Error).Msg] = true }}
	_, _ = cfg.Check(dir, fset, files, nil) // Error has seen all of them
	return found
}

// nothing imports each package as one without names.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	base := path.Base(name)
	if strings.HasPrefix(base, "v") && len(base) == 2 {
		base = path.Base(path.Dir(name))
	}
	p := types.NewPackage(name, strings.TrimPrefix(base, "go-"))
	p.MarkComplete()
	return p, nil
}
