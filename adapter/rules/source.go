package rules

import (
	"errors"
	"fmt"
	"slices"
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
	// The time that the parser takes grows with the square of these.
	maxItems  = 20_000 // of a list
	maxFields = 2_000  // of a mapping
	maxEmpty  = 1_000  // fields without a value, in the file
	maxBlank  = 100    // empty lines in a row
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
	if line := blank(text); line > 0 {
		c.add(place{line, 1}, "", "there are more than %d empty lines in a row", maxBlank)
		return nil
	}
	if at, r := unprintable(text); at != (place{}) {
		c.add(at, "", "%s is not allowed: write UTF-8 text", r)
		return nil
	}
	// The parser is recursive: what would be too deep for the stack must be found before.
	tokens := lexer.Tokenize(withoutEndComment(strings.ReplaceAll(text, "\r\n", "\n")))
	tokens = slices.DeleteFunc(tokens, func(t *token.Token) bool { return t.Type == token.CommentType })
	if !allowed(c, tokens) {
		return nil
	}
	for _, part := range split(tokens) {
		file, err := parser.Parse(part, 0, parser.AllowDuplicateMapKey())
		if err != nil {
			addSyntax(c, err)
			return nil
		}
		fields := 0
		for _, d := range file.Docs {
			if n := convert(c, d.Body); n.kind != nothing {
				docs = append(docs, n)
				fields += n.count()
			}
		}
		if c.count() == 0 && fields != colons(part) { // better no file than a part of one
			c.add(placeOf(part[0]), "", "this is not YAML that can be read: it seems to have %d fields, and %d were found", colons(part), fields)
		}
	}
	if c.count() > 0 {
		return nil
	}
	return docs
}

// isEnd reports whether a line is the end mark, which a comment may follow.
func isEnd(line string) bool {
	rest, found := strings.CutPrefix(line, endMark)
	text := strings.TrimLeft(rest, " \t")
	return found && (strings.TrimRight(text, "\r") == "" || text != rest && text[0] == '#')
}

// withoutEndComment removes comments behind end marks, which the lexer takes for text.
func withoutEndComment(text string) string {
	if !strings.Contains(text, "\n"+endMark) {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if isEnd(line) {
			lines[i] = endMark
		}
	}
	return strings.Join(lines, "\n")
}

// split divides tokens into those of each document. The parser could do so as well, but
// skips documents that follow an empty one.
func split(tokens token.Tokens) (parts []token.Tokens) {
	begin := 0
	for i, t := range tokens {
		if divides(t) {
			parts = append(parts, tokens[begin:i])
			begin = i + 1
		}
	}
	return slices.DeleteFunc(append(parts, tokens[begin:]), func(part token.Tokens) bool { return len(part) == 0 })
}

// colons returns how many fields tokens have.
func colons(tokens token.Tokens) (n int) {
	for _, t := range tokens {
		if t.Type == token.MappingValueType {
			n++
		}
	}
	return n
}

func divides(t *token.Token) bool {
	return t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType
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
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f, r == '\ufeff', isControl(r):
			return place{line, column}, fmt.Sprintf("the character %U", r)
		case r == '\r' && !strings.HasPrefix(text[i:], "\r\n"):
			return place{line, column}, "a carriage return without a line feed"
		}
	}
	return place{}, ""
}

// isControl reports whether a terminal, or a reader, may take r for a command: U+009B begins
// one as the escape character does, and U+202E turns the text that follows around.
func isControl(r rune) bool {
	return r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// blank returns the line in which there are too many empty lines in a row, 0 if there are not.
func blank(text string) int {
	line, row := 0, 0
	for l := range strings.Lines(text) {
		line++
		if row++; strings.TrimSpace(l) != "" {
			row = 0
		}
		if row > maxBlank {
			return line
		}
	}
	return 0
}

// allowed reports whether tokens have only what a rules file may have, and are neither nested
// too deeply nor too many. Without anchors and aliases no small file can describe a large
// value.
func allowed(c *collector, tokens token.Tokens) bool {
	before := c.count()
	var n nesting
	documents := 1
	for i, t := range tokens {
		at := placeOf(t)
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			c.add(at, "", "anchors, aliases and << are not supported: write the value out, or use a plan")
		case token.TagType:
			c.add(at, "", "tags such as %s are not supported", clip(t.Value))
		case token.DirectiveType:
			c.add(at, "", "directives are not supported")
		case token.LiteralType, token.FoldedType:
			c.add(at, "", "text in several lines is not supported: write it in one")
		case token.InvalidType:
			c.add(at, "", "%s", invalidToken(t))
		case token.DocumentEndType:
			if i+1 < len(tokens) { // a file that is cut off there would look whole
				c.add(placeOf(tokens[i+1]), "", "nothing may follow the line of %s in line %d, which ends the file", endMark, at.line)
				return false
			}
		case token.DocumentHeaderType:
			documents++
			n = nesting{}
		default:
			n.pass(tokens, i)
			if strings.Contains(strings.TrimSpace(t.Origin), "\n") { // cut off, it would be another text
				c.add(at, "", "text in several lines is not supported: write it in one")
			}
		}
		switch {
		case n.depth() > maxDepth:
			c.add(at, "", "this is nested more than %d levels deep", maxDepth)
		case n.touched.isMap && n.touched.entries > maxFields:
			c.add(at, "", "there are more than %d fields in one mapping", maxFields)
		case n.touched.entries > maxItems:
			c.add(at, "", "there are more than %d items in one list", maxItems)
		case n.bare, n.empty > maxEmpty:
			c.add(at, "", "a field needs a value")
		case documents > maxDocuments:
			c.add(at, "", "there are more than %d documents", maxDocuments)
		default:
			continue
		}
		return false
	}
	return c.count() == before
}

// nesting follows which blocks and brackets are open.
type nesting struct {
	blocks  []open // outermost first
	flow    []open
	touched open // the one that got an entry last
	empty   int  // fields and items of blocks without a value
	bare    bool // there is a field in brackets without one
}

// open is a mapping or list that is not complete: where it begins, and its entries so far.
type open struct {
	column, entries int
	isMap           bool
}

func (n *nesting) depth() int { return len(n.blocks) + len(n.flow) }

// pass takes the next token.
func (n *nesting) pass(tokens token.Tokens, i int) {
	t, before, after := tokens[i], &token.Token{}, &token.Token{}
	if i > 0 {
		before = tokens[i-1]
	}
	if i+1 < len(tokens) {
		after = tokens[i+1]
	}
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		n.flow = append(n.flow, open{isMap: t.Type == token.MappingStartType})
	case token.SequenceEndType, token.MappingEndType:
		n.flow = n.flow[:max(len(n.flow)-1, 0)]
	case token.CollectEntryType:
		n.entry(n.flow)
	case token.MappingValueType:
		if len(n.flow) > 0 {
			n.bare = n.bare || ends(after)
			return
		}
		n.block(placeOf(before).column, true, t, after)
	case token.SequenceEntryType, token.MappingKeyType:
		n.block(placeOf(t).column, t.Type == token.MappingKeyType, t, after)
	default:
		if last := len(n.flow) - 1; last >= 0 && n.flow[last].isMap && begins(before) && ends(after) {
			n.bare = true // a key and no colon
		}
	}
}

// begins reports whether a field of a mapping in brackets follows, ends whether it ends here.
func begins(t *token.Token) bool {
	return t.Type == token.CollectEntryType || t.Type == token.MappingStartType
}

func ends(t *token.Token) bool {
	return t.Type == token.CollectEntryType || t.Type == token.MappingEndType
}

// entry counts one for the innermost that is open.
func (n *nesting) entry(of []open) {
	if last := len(of) - 1; last >= 0 {
		of[last].entries++
		n.touched = of[last]
	}
}

// block notes an entry of the block that begins in a column.
func (n *nesting) block(column int, isMap bool, t, after *token.Token) {
	if len(n.flow) > 0 {
		return
	}
	for len(n.blocks) > 0 && n.blocks[len(n.blocks)-1].column > column {
		n.blocks = n.blocks[:len(n.blocks)-1]
	}
	if last := len(n.blocks) - 1; last < 0 || n.blocks[last].column < column {
		n.blocks = append(n.blocks, open{column: column})
	}
	n.blocks[len(n.blocks)-1].isMap = isMap
	n.entry(n.blocks)
	next := placeOf(after)
	if next.line > placeOf(t).line && (next.column < column || next.column == column && after.Type != token.SequenceEntryType) {
		n.empty++
	} else if !isMap && after.Type == token.SequenceEntryType && next.column == column {
		n.empty++
	}
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
