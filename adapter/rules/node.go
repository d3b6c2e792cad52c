package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// place is a position in a file: line and column from 1.
type place struct{ line, column int }

// kind says what a node is.
type kind uint8

const (
	nothing kind = iota // an empty value, or null
	scalar
	list
	mapping
)

// String returns what users call it.
func (k kind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping of fields"}[k]
}

// node is a value of a file, with its place: what the decoder needs of YAML.
type node struct {
	place
	kind   kind
	text   string // of a scalar
	quoted bool   // it is text, whatever it looks like
	flow   bool   // a mapping or list in brackets, which is not complete without the last one
	fields []field
	items  []*node
}

// field is a key of a mapping and its value.
type field struct {
	place
	name  string
	value *node
}

// get returns the value of a field, nil if there is none.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// join returns the path of a field within another one.
func join(path, name string) string {
	if !simple(name) {
		return path + "[" + strconv.Quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// simple reports whether a name can stand in a path as it is.
func simple(name string) bool {
	return name != "" && len(name) <= mostShown && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/:") == ""
}

// identity names an item of a list by what it is about rather than by its index, so that
// paths stay the same when items move.
func identity(path string, index int, n *node) string {
	var parts []string
	for _, name := range []string{"key", "prefix", "cidr", "route", "value", "name"} {
		v := n.get(name)
		if v != nil && v.kind == list && len(v.items) > 0 {
			v = v.items[0]
		}
		if v != nil && v.kind == scalar {
			text := v.text
			if !simple(text) {
				text = strconv.Quote(clip(text))
			}
			if len(v.text) > mostShown { // what is cut off must still tell two apart
				text += suffixOf(v.text)
			}
			parts = append(parts, name+"="+text)
		}
	}
	if len(parts) == 0 {
		parts = []string{strconv.Itoa(index)}
	}
	return path + "[" + strings.Join(parts, ",") + "]"
}

// mostShown is how many bytes of a text a message shows.
const mostShown = 64

// clip shortens text for a message.
func clip(text string) string {
	if len(text) <= mostShown {
		return text
	}
	end := mostShown
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// suffixOf returns what tells a long or secret text from others. It is short, and shows
// nothing of it.
func suffixOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "@key-" + hex.EncodeToString(sum[:6])
}

// count returns how many fields there are in n, at any depth.
func (n *node) count() int {
	total := len(n.fields)
	for _, f := range n.fields {
		total += f.value.count()
	}
	for _, item := range n.items {
		total += item.count()
	}
	return total
}
