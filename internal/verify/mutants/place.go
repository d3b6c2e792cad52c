package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// place is where in a file a mutant changes something.
type place struct {
	file     string // slashes, from the root
	text     string // of the whole file
	from, to int    // of what is replaced
}

// find returns the place of a mutant. In the declaration, or in the file, that the mutant names its text
// must occur once: exactly or, in Go, as the same words with other blanks and comments.
func (m mutant) find(root string) (place, error) {
	regions, err := m.regions(root)
	if err != nil {
		return place{}, fmt.Errorf("%w: %s: %w", errStale, m.name, err)
	}
	searches := []func(text, part string) [][2]int{exactly, byWords}
	if !strings.HasSuffix(regions[0].file, ".go") {
		searches = searches[:1]
	}
	for _, search := range searches {
		var found []place
		for _, r := range regions {
			for _, at := range search(r.text[r.from:r.to], m.old) {
				found = append(found, place{r.file, r.text, r.from + at[0], r.from + at[1]})
			}
		}
		if len(found) == 1 && m.old != m.new {
			return found[0], nil
		}
	}
	return place{}, fmt.Errorf("%w: %s: %q is not there once in %s", errStale, m.name, m.old, m.at)
}

// regions returns the whole file, or the declarations, that a mutant names. Files for several systems may
// declare the same.
func (m mutant) regions(root string) (list []place, err error) {
	dir, decl, ok := strings.Cut(m.at, " ")
	if !ok {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.at)))
		return []place{{m.at, string(text), 0, len(text)}}, err
	}
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			some, err := declared(root, path.Join(dir, name), decl)
			if err != nil {
				return nil, err
			}
			list = append(list, some...)
		}
	}
	if len(list) == 0 {
		err = fmt.Errorf("nothing in %s is called %s", dir, decl)
	}
	return list, err
}

// declared returns the declarations of a name in a file.
func declared(root, file, name string) (list []place, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		if slices.Contains(names(d), name) {
			list = append(list, place{file, string(text), fset.Position(d.Pos()).Offset, fset.Position(d.End()).Offset})
		}
	}
	return list, nil
}

// names returns what a declaration declares: a method as Type.Method.
func names(d ast.Decl) (list []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		t := d.Recv.List[0].Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		switch generic := t.(type) {
		case *ast.IndexExpr:
			t = generic.X
		case *ast.IndexListExpr:
			t = generic.X
		}
		return []string{t.(*ast.Ident).Name + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				list = append(list, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					list = append(list, n.Name)
				}
			}
		}
	}
	return list
}

// exactly returns where a part is in a text.
func exactly(text, part string) (list [][2]int) {
	for from := 0; ; from++ {
		at := strings.Index(text[from:], part)
		if at < 0 {
			return list
		}
		from += at
		list = append(list, [2]int{from, from + len(part)})
	}
}

// word is a token of Go.
type word struct {
	text     string
	from, to int
}

// wordsOf returns the tokens of a text, without those that only end a line.
func wordsOf(text string) (list []word) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	s.Init(file, []byte(text), func(token.Position, string) {}, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return list
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		if lit == "" {
			lit = tok.String()
		}
		from := file.Offset(pos)
		list = append(list, word{lit, from, from + len(lit)})
	}
}

// byWords returns where a part is in a text of Go, whatever blanks and comments are between the words.
func byWords(text, part string) (list [][2]int) {
	all, want := wordsOf(text), wordsOf(part)
	for i := 0; len(want) > 0 && i+len(want) <= len(all); i++ {
		if slices.EqualFunc(all[i:i+len(want)], want, func(a, b word) bool { return a.text == b.text }) {
			list = append(list, [2]int{all[i].from, all[i+len(want)-1].to})
		}
	}
	return list
}
