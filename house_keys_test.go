package hybridlimit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// wholeKeys names the files whose errors may show a whole key, and why.
var wholeKeys = map[string]string{
	"cmd/hybridlimit/internal/connect/explain.go": "an operator is to find the name in Redis; it has some hundred bytes at most, and is escaped",
	"internal/rig/stored.go":                      "programs that check promises read their own keys in Redis",
}

// Keys come from attackers: megabytes, or what a terminal takes for a command. The text of an error
// shows a key as package internal/escape makes it, and never as it is.
func TestHouseKeysInErrorsAreEscaped(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		if d.IsDir() {
			if p == "bench" || p == "examples" || p != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || wholeKeys[p] != "" {
			return nil
		}
		files++
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, key := range keysInErrors(f) {
			t.Errorf("%s: a key as it is in the text of an error: use escape.Quote", fset.Position(key.Pos()))
		}
		return nil
	})
	if err != nil || files < 200 {
		t.Fatalf("%d files, %v", files, err)
	}
}

func TestHouseKeysInErrorsAreFound(t *testing.T) {
	const bad = `package p
func f(key string, keys []string, q check) error {
	_ = fmt.Errorf("%.64q", key)
	_ = fmt.Errorf("%q", keys[0])
	_ = errors.New("no " + q.Key)
	return fmt.Errorf("%s of %w", escape.Quote(key), fmt.Errorf("%d", len(key)))
}
func (e *E) Error() string { return fmt.Sprintf("%q", e.Key) }
func g(key string) string { return fmt.Sprintf("%q", key) }
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", bad, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := keysInErrors(f); len(found) != 4 {
		t.Errorf("%d keys found, want 4", len(found))
	}
}

// keysInErrors returns the expressions named like a key that are an argument of what makes an
// error, or of anything in a method Error.
func keysInErrors(f *ast.File) (keys []ast.Expr) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		all := fn.Recv != nil && fn.Name.Name == "Error"
		ast.Inspect(fn, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if is(call.Fun, "escape", "Quote") {
				return false
			}
			if all || is(call.Fun, "fmt", "Errorf") || is(call.Fun, "errors", "New") || is(call.Fun, "status", "Newf") || is(call.Fun, "status", "Errorf") {
				for _, arg := range call.Args {
					keys = append(keys, keysIn(arg)...)
				}
			}
			return true
		})
	}
	return keys
}

// keysIn returns what is named like a key in an argument, joined to other text or not. What a
// function makes of a key is another thing.
func keysIn(arg ast.Expr) []ast.Expr {
	named := ""
	switch e := arg.(type) {
	case *ast.BinaryExpr:
		return append(keysIn(e.X), keysIn(e.Y)...)
	case *ast.IndexExpr:
		return keysIn(e.X)
	case *ast.Ident:
		named = e.Name
	case *ast.SelectorExpr:
		named = e.Sel.Name
	}
	switch strings.ToLower(named) {
	case "key", "keys", "subject", "remoteaddr":
		return []ast.Expr{arg}
	}
	return nil
}
