package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Parse reads the text of a rules file, YAML or JSON. name is what errors call the file. The
// error is of type [Problems] and has all that was found wrong, in the order of the lines.
func Parse(name string, text []byte) (*Set, error) {
	return Options{}.Parse(name, text)
}

// Parse is [Parse] for a limiter that Options.Check knows: a rule that it cannot decide by is a
// problem, as it is for [Watch]. The other options mean nothing here.
func (o Options) Parse(name string, text []byte) (*Set, error) {
	set, problems := parse(name, text, nil, o.Check)
	if problems != nil {
		return nil, problems
	}
	return set, nil
}

// Load is [Load] for a limiter that Options.Check knows, see [Options.Parse].
func (o Options) Load(path string) (*Set, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return o.Parse(path, text)
}

// Validate returns what is wrong with the text of a rules file, nil if nothing is. It is
// [Parse] for those who do not want the rules.
func Validate(name string, text []byte) Problems {
	_, problems := parse(name, text, nil, nil)
	return problems
}

// Load reads a rules file once, see [Parse]. A file that cannot be read is a problem, too.
func Load(path string) (*Set, error) { return Options{}.Load(path) }

// parse reads a file. Rules that are the same as in old stay the same pointer. A rule that
// check, unless it is nil, has an error for is a problem.
func parse(name string, text []byte, old *Set, check func(*limit.Rule) error) (*Set, Problems) {
	c := &collector{file: name}
	docs := documents(c, string(text))
	if len(docs) == 0 {
		if len(c.problems) == 0 {
			c.add(place{}, "", "the file is empty: it has no rules")
		}
		return nil, c.result()
	}
	b := &builder{decoder: decoder{c}, set: newSet(), check: check}
	if old != nil {
		b.old = old.built
	}
	b.documents(docs)
	if problems := c.result(); problems != nil {
		return nil, problems
	}
	b.set.finish(docs, string(text))
	return b.set, nil
}

// documents reads each document of a file: at most one of rules, and one for each domain.
func (b *builder) documents(docs []*node) {
	var rules *node
	for _, doc := range docs {
		switch {
		case !b.mapping(doc, ""):
		case doc.get("domain") != nil || doc.get("descriptors") != nil:
			b.domain(doc)
		case rules != nil:
			b.add(doc.place, "", "there is a document of rules already, in line %d", rules.line)
		default:
			rules = doc
			b.sections(doc)
		}
	}
}

func newSet() *Set {
	return &Set{
		rules: map[string]*named{}, plans: map[string]*plan{}, keys: map[string]*override{}, addresses: map[netip.Prefix]*override{}, prefixes: map[string]*override{}, routes: map[string]*override{},
		domains: map[string]*level{}, built: map[build]*limit.Rule{},
	}
}

var errTooLarge = fmt.Errorf("the file has more than %d bytes", MaxBytes)

// readFile reads a regular file of at most [MaxBytes].
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened: to open a pipe would wait
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("this is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = errTooLarge
	}
	return text, err
}

// unreadable is the problem of a file that cannot be read.
func unreadable(path string, err error) Problems {
	message := err.Error()
	var p *fs.PathError
	if errors.As(err, &p) {
		message = p.Err.Error() // the path is said already
	}
	return failed(path, "cannot be read: "+message, err)
}
