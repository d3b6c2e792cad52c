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
	const root = "../../.."
	packages := map[string]*parsed{} // by directory
	for _, m := range table() {
		file, text, err := m.mutate(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.HasSuffix(file, ".go") {
			continue
		}
		dir := filepath.Join(root, path.Dir(file))
		p := packages[dir]
		if p == nil {
			p = parsePackage(t, dir)
			packages[dir] = p
		}
		for what := range p.problems(path.Base(file), text) {
			if !p.sound[what] {
				t.Errorf("%s does not compile: %s", m.name, what)
			}
		}
	}
}

// parsed is a package whose files are parsed once for all mutants.
type parsed struct {
	dir   string
	fset  *token.FileSet
	files map[string]*ast.File
	sound map[string]bool // the problems without a mutant
}

func parsePackage(t *testing.T, dir string) *parsed {
	t.Helper()
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &parsed{dir: dir, fset: token.NewFileSet(), files: map[string]*ast.File{}}
	for _, name := range pkg.GoFiles {
		if p.files[name], err = p.parse(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	p.sound = p.problems("", "")
	return p
}

func (p *parsed) parse(name string, src any) (*ast.File, error) {
	return parser.ParseFile(p.fset, filepath.Join(p.dir, name), src, parser.SkipObjectResolution)
}

// problems type-checks the package with the given text in place of one of its files.
func (p *parsed) problems(file, text string) map[string]bool {
	found := map[string]bool{}
	var files []*ast.File
	for name, f := range p.files {
		if name == file {
			var err error
			if f, err = p.parse(name, text); err != nil {
				found[err.Error()] = true
				continue
			}
		}
		files = append(files, f)
	}
	cfg := types.Config{Importer: nothing{}, Error: func(err error) { found[err.(types.Error).Msg] = true }}
	_, _ = cfg.Check(p.dir, p.fset, files, nil) // Error has seen all of them
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
