package rules

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file. They keep a broken or hostile one from taking the process's memory; a
// ConfigMap of Kubernetes is not larger either.
const (
	// MaxBytes is how large a rules file may be.
	MaxBytes     = 1 << 20
	maxDepth     = 32
	maxDocuments = 1000
)

// endMark is what YAML has for the end of a document. As the last line it says that the file
// is whole.
const endMark = "..."

// documents parses text into the nodes of its documents. JSON is read as what it is, a
// subset of YAML. What it finds wrong goes to c, and no documents are returned then.
func documents(c *collector, text string) (docs []*node) {
	defer func() {
		// The parser is not ours. What it cannot cope with must not end a process that
		// limits by other rules.
		if r := recover(); r != nil {
			c.add(place{}, "", "this is not YAML that can be read: %v", r)
			docs = nil
		}
	}()
	text = strings.TrimPrefix(text, "\ufeff")
	if len(text) > MaxBytes {
		c.add(place{}, "", "the file has more than %d bytes", MaxBytes)
		return nil
	}
	if at, r := unprintable(text); at != (place{}) {
		c.add(at, "", "%s is not allowed: write UTF-8 text", r)
		return nil
	}
	// The parser is recursive: what would be too deep for the stack must be found before.
	tokens := lexer.Tokenize(strings.ReplaceAll(text, "\r\n", "\n"))
	if !allowed(c, tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		addSyntax(c, err)
		return nil
	}
	if len(file.Docs) > maxDocuments {
		c.add(place{}, "", "the file has %d documents, at most %d are allowed", len(file.Docs), maxDocuments)
		return nil
	}
	before := len(c.problems)
	for _, d := range file.Docs {
		if n := convert(c, d.Body); n.kind != nothing {
			docs = append(docs, n)
		}
	}
	if len(c.problems) > before {
		return nil
	}
	return docs
}

// unprintable returns the place of the first byte that no text file has, and its name.
func unprintable(text string) (at place, what string) {
	line, column := 1, 0
	for i, r := range text {
		column++
		switch {
		case r == '\n':
			line, column = line+1, 0
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			return place{line, column}, fmt.Sprintf("the byte 0x%02x", text[i])
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f, r == '\ufeff':
			return place{line, column}, fmt.Sprintf("the character %U", r)
		case r == '\r' && !strings.HasPrefix(text[i:], "\r\n"):
			return place{line, column}, "a carriage return without a line feed"
		}
	}
	return place{}, ""
}

// allowed reports whether tokens have only what a rules file may have, and are not nested
// too deeply. Without anchors and aliases no small file can describe a large value.
func allowed(c *collector, tokens token.Tokens) bool {
	before := len(c.problems)
	var columns []int // of the blocks that are open, outermost first
	flow := 0         // brackets that are open
	for i, t := range tokens {
		at := placeOf(t)
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			c.add(at, "", "anchors, aliases and << are not supported: write the value out, or use a plan")
		case token.TagType:
			c.add(at, "", "tags such as %s are not supported", clip(t.Value))
		case token.DirectiveType:
			c.add(at, "", "directives are not supported")
		case token.InvalidType:
			c.add(at, "", "%s", invalidToken(t))
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			column := at.column
			if t.Type == token.MappingValueType && i > 0 {
				column = placeOf(tokens[i-1]).column
			}
			for len(columns) > 0 && columns[len(columns)-1] >= column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, column)
		}
		if flow+len(columns) > maxDepth {
			c.add(at, "", "this is nested more than %d levels deep", maxDepth)
			return false
		}
	}
	return len(c.problems) == before
}

func invalidToken(t *token.Token) string {
	if t.Error != "" {
		return "this is not YAML: " + t.Error
	}
	return "this is not YAML"
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// addSyntax notes an error of the parser.
func addSyntax(c *collector, err error) {
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		c.add(placeOf(syntax.GetToken()), "", "this is not YAML: %s", syntax.GetMessage())
		return
	}
	c.add(place{}, "", "this is not YAML: %v", err)
}

// convert makes a node of what the parser has found.
func convert(c *collector, n ast.Node) *node {
	switch n := n.(type) {
	case nil:
		return &node{}
	case *ast.MappingNode:
		return convertMapping(c, n)
	case *ast.SequenceNode:
		out := &node{place: placeOf(n.GetToken()), kind: list, flow: n.IsFlowStyle}
		for _, v := range n.Values {
			out.items = append(out.items, convert(c, v))
		}
		return out
	case *ast.NullNode:
		return &node{place: placeOf(n.GetToken())}
	case *ast.LiteralNode:
		return &node{place: placeOf(n.GetToken()), kind: scalar, text: n.Value.Value, quoted: true}
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		t := n.GetToken()
		quoted := t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
		return &node{place: placeOf(t), kind: scalar, text: t.Value, quoted: quoted}
	}
	c.add(placeOf(n.GetToken()), "", "%s is not supported here", strings.ToLower(n.Type().String()))
	return &node{place: placeOf(n.GetToken())}
}

func convertMapping(c *collector, n *ast.MappingNode) *node {
	out := &node{place: placeOf(n.GetToken()), kind: mapping, flow: n.IsFlowStyle}
	for _, v := range n.Values {
		key := convertKey(c, v.Key)
		if key == nil {
			continue
		}
		if !n.IsFlowStyle && len(out.fields) == 0 {
			out.place = key.place // the parser says where its colon is
		}
		out.fields = append(out.fields, field{key.place, key.text, convert(c, v.Value)})
	}
	return out
}

// convertKey returns the name of a field, or nil and a problem if it is no plain name.
func convertKey(c *collector, n ast.MapKeyNode) *node {
	at := placeOf(n.GetToken())
	if _, explicit := n.(*ast.MappingKeyNode); explicit {
		c.add(at, "", "a field is written as name: value, without a question mark")
		return nil
	}
	key := convert(c, n)
	if key.kind != scalar || key.text == "" {
		c.add(at, "", "a field needs a name")
		return nil
	}
	return key
}
