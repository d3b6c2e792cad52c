package hybridlimit_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("api.update", false, "write docs/api anew")

// apiPackages are the packages that users import, with the modules beside the library.
var apiPackages = append(slices.Sorted(maps.Keys(most)), "adapter/grpclimit", "adapter/otellimit", "adapter/promlimit", "adapter/rules", "compat/xrate")

// What users can write is in docs/api, a line for each name. A line that goes, or changes, breaks
// programs; so does a new method of an interface. See docs/stability.md.
func TestHouseAPI(t *testing.T) {
	for _, dir := range apiPackages {
		file := path.Join("docs/api", strings.ReplaceAll(dir, "/", "-")+".txt")
		is := api(t, dir)
		if *updateAPI {
			if err := os.WriteFile(file, []byte(strings.Join(is, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		was := strings.Split(strings.TrimSuffix(read(t, file), "\n"), "\n")
		for _, line := range was {
			if !slices.Contains(is, line) {
				t.Errorf("%s: gone or changed, which breaks programs that use it: %s", dir, line)
			}
		}
		for _, line := range is {
			switch {
			case slices.Contains(was, line):
			case strings.HasPrefix(line, "interface "):
				t.Errorf("%s: a new method breaks programs that implement the interface: %s", dir, line)
			default:
				t.Errorf("%s: not in %s yet: %s", dir, file, line)
			}
		}
	}
	files, err := filepath.Glob("docs/api/*.txt")
	if err != nil || len(files) != len(apiPackages) {
		t.Errorf("%d files in docs/api for %d packages: %v", len(files), len(apiPackages), err)
	}
	if t.Failed() {
		t.Log("if that is meant: go test -run TestHouseAPI . -api.update, and say it in CHANGELOG.md")
	}
}

// api returns one line for each name that a package exports, sorted.
func api(t *testing.T, dir string) (lines []string) {
	t.Helper()
	for _, f := range sources(t, dir, false) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				switch {
				case !d.Name.IsExported():
				case d.Recv == nil:
					lines = append(lines, "func "+d.Name.Name+typeParams(d.Type)+signature(d.Type))
				case ast.IsExported(receiver(d)):
					lines = append(lines, "method ("+text(d.Recv.List[0].Type)+") "+d.Name.Name+signature(d.Type))
				}
			case *ast.GenDecl:
				lines = append(lines, apiOf(d)...)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines) // a file for each system declares the same names
}

// apiOf returns the lines of a declaration of types, variables or constants.
func apiOf(d *ast.GenDecl) (lines []string) {
	of := "" // the type of constants that go on counting
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				lines = append(lines, apiOfType(s)...)
			}
		case *ast.ValueSpec:
			value := ""
			if s.Type != nil {
				of = " " + text(s.Type)
			} else if len(s.Values) > 0 {
				of = ""
				if d.Tok == token.CONST {
					value = " = " + text(s.Values[0])
				}
			}
			for _, n := range s.Names {
				if n.IsExported() {
					lines = append(lines, d.Tok.String()+" "+n.Name+of+value)
				}
			}
		}
	}
	return lines
}

func apiOfType(s *ast.TypeSpec) (lines []string) {
	name, members, kind := s.Name.Name, (*ast.FieldList)(nil), ""
	switch is := s.Type.(type) {
	case *ast.StructType:
		members, kind = is.Fields, "struct"
	case *ast.InterfaceType:
		members, kind = is.Methods, "interface"
	default:
		if kind = text(s.Type); s.Assign.IsValid() {
			kind = "= " + kind
		}
		return []string{"type " + name + " " + kind}
	}
	lines = []string{"type " + name + " " + kind}
	if kind == "struct" {
		kind = "field"
	}
	for _, m := range members.List {
		if len(m.Names) == 0 {
			if embedded := text(m.Type); kind == "interface" || ast.IsExported(embedded[strings.LastIndex(embedded, ".")+1:]) {
				lines = append(lines, fmt.Sprintf("%s %s embeds %s", kind, name, embedded))
			}
		}
		for _, n := range m.Names {
			if !n.IsExported() && kind != "interface" { // an interface with it cannot be implemented elsewhere
				continue
			}
			is := " " + text(m.Type)
			if fn, ok := m.Type.(*ast.FuncType); ok && kind == "interface" {
				is = signature(fn)
			}
			lines = append(lines, kind+" "+name+"."+n.Name+is)
		}
	}
	return lines
}

// signature returns the types of parameters and results: their names may change.
func signature(fn *ast.FuncType) string {
	results := types(fn.Results)
	switch len(results) {
	case 0:
		return "(" + strings.Join(types(fn.Params), ", ") + ")"
	case 1:
		return "(" + strings.Join(types(fn.Params), ", ") + ") " + results[0]
	}
	return "(" + strings.Join(types(fn.Params), ", ") + ") (" + strings.Join(results, ", ") + ")"
}

func types(list *ast.FieldList) (texts []string) {
	if list == nil {
		return nil
	}
	for _, f := range list.List {
		for range max(len(f.Names), 1) {
			texts = append(texts, text(f.Type))
		}
	}
	return texts
}

func typeParams(fn *ast.FuncType) string {
	if fn.TypeParams == nil {
		return ""
	}
	var params []string
	for _, f := range fn.TypeParams.List {
		for _, n := range f.Names {
			params = append(params, n.Name+" "+text(f.Type))
		}
	}
	return "[" + strings.Join(params, ", ") + "]"
}

// text returns an expression as Go writes it, in one line; function and interface types without the
// names of parameters.
func text(e ast.Expr) string {
	switch is := e.(type) {
	case *ast.FuncType:
		return "func" + signature(is)
	case *ast.InterfaceType:
		var methods []string
		for _, m := range is.Methods.List {
			if fn, ok := m.Type.(*ast.FuncType); ok {
				methods = append(methods, m.Names[0].Name+signature(fn))
			} else {
				methods = append(methods, text(m.Type))
			}
		}
		return "interface{" + strings.Join(methods, "; ") + "}"
	}
	var b strings.Builder
	if err := printer.Fprint(&b, token.NewFileSet(), e); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// mostDocLines is how long a comment of a public name may be. What is longer belongs into docs.
const mostDocLines = 12

// docLink is a link of a comment to a name: in its package, or in another one of ours.
var docLink = regexp.MustCompile(`\[\*?((?:[a-z]+\.)?[A-Z]\w*(?:\.[A-Z]\w*)?)\](\.[A-Z]\w*)?`)

// What users read in go doc is short, and its links lead to names that are there.
func TestHouseDocComments(t *testing.T) {
	names := map[string]string{} // the public names of a package, by its last word
	for _, dir := range apiPackages {
		names[path.Base(dir)] = strings.Join(api(t, dir), "\n")
	}
	for _, dir := range apiPackages {
		for _, f := range sources(t, dir, false) {
			ast.Inspect(f.File, func(n ast.Node) bool {
				doc, of := publicDoc(n)
				if doc == nil {
					return !isBody(n)
				}
				if lines := strings.Count(strings.TrimSpace(doc.Text()), "\n") + 1; of != "package" && lines > mostDocLines {
					t.Errorf("%v: the comment of %s has %d lines, at most %d are wanted", f.at(doc), of, lines, mostDocLines)
				}
				for _, m := range docLink.FindAllStringSubmatch(doc.Text(), -1) {
					pkg, name, other := strings.Cut(m[1], ".")
					if !other || token.IsExported(pkg) { // of this package
						pkg, name = path.Base(dir), m[1]
					}
					if public, ours := names[pkg]; ours && !hasName(public, name+m[2]) {
						t.Errorf("%v: the comment of %s links to %s, which is not there", f.at(doc), of, m[0])
					}
				}
				return !isBody(n)
			})
		}
	}
}

// isBody reports whether nothing below a node is public.
func isBody(n ast.Node) bool { _, is := n.(*ast.BlockStmt); return is }

// publicDoc returns the comment of a declaration that users see, and its name.
func publicDoc(n ast.Node) (*ast.CommentGroup, string) {
	switch n := n.(type) {
	case *ast.File:
		return n.Doc, "package" // may be longer
	case *ast.FuncDecl:
		if n.Name.IsExported() && (n.Recv == nil || ast.IsExported(receiver(n))) {
			return n.Doc, n.Name.Name
		}
	case *ast.GenDecl:
		if n.Tok == token.TYPE && len(n.Specs) == 1 && n.Specs[0].(*ast.TypeSpec).Name.IsExported() {
			return n.Doc, n.Specs[0].(*ast.TypeSpec).Name.Name
		}
	case *ast.ValueSpec:
		if n.Names[0].IsExported() {
			return n.Doc, n.Names[0].Name
		}
	case *ast.Field:
		if len(n.Names) > 0 && n.Names[0].IsExported() {
			return n.Doc, n.Names[0].Name
		}
	}
	return nil, ""
}

// hasName reports whether the lines of docs/api have a name: N, or T.M, a method or a field.
func hasName(public, name string) bool {
	of, member, both := strings.Cut(name, ".")
	pattern := `(?m)^(?:const|var|func|type) ` + of + `\b`
	if both {
		pattern = `(?m)^(?:field|interface) ` + of + `\.` + member + `\b|^method \(\*?` + of + `\) ` + member + `\b`
	}
	return regexp.MustCompile(pattern).MatchString(public)
}
