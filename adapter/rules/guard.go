package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A YAML file that is cut off between two lines is a YAML file too, with fewer rules. What
// follows keeps such a file from being taken for a new one: it may not lack anything that is
// in force, unless it shows that it is whole.

// source is what is remembered of the text of a [Set].
type source struct {
	text    string
	present map[string]place // the path of each field
	marked  bool             // the last line is the end mark
	closed  bool             // one document in brackets, as JSON is
	newline bool             // the last line ends
}

// finish fills in what is derived from what was read.
func (s *Set) finish(docs []*node, text string) {
	s.names = slices.Sorted(maps.Keys(s.rules))
	for prefix := range s.prefixes {
		s.lengths = append(s.lengths, len(prefix))
	}
	slices.Sort(s.lengths)
	s.lengths = slices.Compact(s.lengths)
	slices.Reverse(s.lengths)

	s.source = source{
		text: text, present: map[string]place{}, marked: isMarked(text),
		closed: len(docs) == 1 && docs[0].flow, newline: strings.HasSuffix(text, "\n"),
	}
	for _, doc := range docs {
		path := ""
		if name := doc.get("domain"); name != nil {
			path = join("domains", name.text)
		}
		s.source.note(doc, path)
	}
}

// isMarked reports whether the last line that is neither empty nor a comment is the end mark.
func isMarked(text string) bool {
	lines := strings.Split(text, "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimRight(line, " \t\r")
		if line != "" && !strings.HasPrefix(line, "#") {
			return isEnd(line)
		}
	}
	return false
}

// note remembers the paths of all fields of n.
func (s *source) note(n *node, path string) {
	for _, f := range n.fields {
		at := join(path, f.name)
		s.present[at] = f.place
		s.note(f.value, at)
	}
	for i, item := range n.items {
		at := identity(path, i, item)
		s.present[at] = item.place
		s.note(item, at)
	}
}

// refusal returns why a file must not replace the one in force, nil if it may: it looks as
// if its end were missing.
func (s *Set) refusal(old *Set, name string, allowRemoval bool) Problems {
	is, was := &s.source, &old.source
	end := place{strings.Count(is.text, "\n") + 1, 1}
	refuse := func(at place, field, format string, args ...any) Problems {
		return Problems{{File: name, Line: at.line, Column: at.column, Field: field, Message: fmt.Sprintf(format, args...)}}
	}
	switch {
	case allowRemoval || is.marked:
		return nil
	case was.marked:
		return refuse(end, "", "the file seems to be cut off: the one in force ends with a line of %s, this one does not", endMark)
	case is.closed && was.closed:
		return nil
	case !is.closed && !is.newline:
		return refuse(end, "", "the file seems to be cut off: its last line does not end")
	}
	gone := is.lacks(was)
	if len(gone) == 0 {
		return nil
	}
	return refuse(end, gone[0], "is in force and missing from this file%s: if it is to be removed, end the file with a line of %s, which shows that nothing is cut off", others(gone), endMark)
}

// lacks returns the paths that were there and are not, the outermost ones, in the order of
// their places.
func (s *source) lacks(was *source) (gone []string) {
	for path := range was.present {
		if _, there := s.present[path]; !there {
			gone = append(gone, path)
		}
	}
	slices.SortFunc(gone, func(a, b string) int {
		x, y := was.present[a], was.present[b]
		if x.line != y.line {
			return x.line - y.line
		}
		return x.column - y.column
	})
	return outermost(gone)
}

// outermost drops the paths that are within others.
func outermost(paths []string) (out []string) {
	all := map[string]bool{}
	for _, p := range paths {
		all[p] = true
	}
	for _, p := range paths {
		if i := strings.LastIndexAny(p, ".["); i < 0 || !within(all, p) {
			out = append(out, p)
		}
	}
	return out
}

func within(all map[string]bool, path string) bool {
	for i := range len(path) {
		if (path[i] == '.' || path[i] == '[') && all[path[:i]] {
			return true
		}
	}
	return false
}

func others(gone []string) string {
	switch n := len(gone) - 1; {
	case n == 0:
		return ""
	case n <= 4:
		return ", as are " + strings.Join(gone[1:], ", ")
	default:
		return fmt.Sprintf(", as are %s and %d more", strings.Join(gone[1:4], ", "), n-3)
	}
}
