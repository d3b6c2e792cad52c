package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// mutant is a bug put in on purpose.
type mutant struct {
	name   string
	breaks string // what, in one sentence
	at     string // a directory and a declaration in it, or a file; slashes, from the root
	old    string // is there once…
	new    string // …and is replaced by this
	by     check
}

// check is the test that must catch a mutant.
type check struct {
	pkg  string // directory from the root
	test string
	runs int // of the simulator: how many seeds; 0: it is not the simulator
}

func (c check) String() string {
	if c.runs > 0 {
		return fmt.Sprintf("%s.%s of %d seeds", c.pkg, c.test, c.runs)
	}
	return c.pkg + "." + c.test
}

// finding is what has become of a mutant.
type finding struct {
	mutant
	caught bool
	says   string // the first line of the failure
	output string
	took   time.Duration
}

// lab is where mutants are examined.
type lab struct {
	root string
	seed uint64
	jobs int
	tell func(finding) // called as soon as each is known, from several goroutines
	tmp  string
}

// limits of one test: far beyond what it takes, for a machine that is busy.
const testTimeout = "3m"

// tries is how often a test may miss what it is to see: some depend on which of two things comes first.
const tries = 2

// errStale: a mutant no longer fits the code.
var errStale = errors.New("stale mutant")

// mutate returns a file that the mutant changes, and its mutated text.
func (m mutant) mutate(root string) (file, text string, err error) {
	is, err := m.find(root)
	if err != nil {
		return "", "", err
	}
	return is.file, is.text[:is.from] + m.new + is.text[is.to:], nil
}

// examine finds out what becomes of each mutant. An error says that this could
// not be done.
func (l *lab) examine(ctx context.Context, mutants []mutant) (err error) {
	for _, m := range mutants {
		if _, _, err := m.mutate(l.root); err != nil {
			return err
		}
	}
	if l.root, err = filepath.Abs(l.root); err != nil {
		return err
	}
	if l.tmp, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(l.tmp)
	if err := l.sound(ctx, mutants); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(l.jobs)
	for i, m := range mutants {
		g.Go(func() error {
			f, err := l.try(ctx, m, fmt.Sprint("mutant", i))
			if err == nil {
				l.tell(f)
			}
			return err
		})
	}
	return g.Wait()
}

// sound checks that the tests pass on the code as it is.
func (l *lab) sound(ctx context.Context, mutants []mutant) error {
	binaries, checked := map[string]string{}, map[check]bool{}
	var g errgroup.Group
	g.SetLimit(l.jobs)
	for _, m := range mutants {
		c := m.by
		if checked[c] {
			continue
		}
		checked[c] = true
		bin := binaries[c.pkg]
		if bin == "" {
			bin = filepath.Join(l.tmp, fmt.Sprint("sound", len(binaries)))
			binaries[c.pkg] = bin
			if out, err := l.build(ctx, bin, c.pkg, ""); err != nil {
				return fmt.Errorf("the tests of %s do not compile: %w\n%s", c.pkg, err, out)
			}
		}
		g.Go(func() error {
			var out string
			var err error
			for range tries {
				if out, err = l.test(ctx, bin, c); err == nil && strings.Contains(out, "--- PASS: "+c.test+" ") {
					return nil
				}
			}
			return fmt.Errorf("%v does not pass on the code as it is: %w\n%s", c, err, out)
		})
	}
	return g.Wait()
}

// try lets the mutant's test loose on it.
func (l *lab) try(ctx context.Context, m mutant, name string) (finding, error) {
	begun := time.Now()
	overlay, err := l.overlay(m, name)
	if err != nil {
		return finding{}, err
	}
	bin := filepath.Join(l.tmp, name+".test")
	f := finding{mutant: m}
	if f.output, err = l.build(ctx, bin, m.by.pkg, overlay); err != nil {
		f.says = "does not compile"
	} else {
		for range tries {
			f.output, err = l.test(ctx, bin, m.by)
			if f.caught, f.says = verdict(m.by.test, f.output, err); f.caught {
				break
			}
		}
		os.Remove(bin)
	}
	f.took = time.Since(begun)
	return f, ctx.Err()
}

// crash is what a Go program prints when it ends otherwise than by its own will.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error): .*`)

// message is a line in which a test says where and why it fails.
var message = regexp.MustCompile(`(?m)^\s+(\w+_test\.go:\d+: .*)`)

// verdict tells whether a test has caught a mutant, and what it said first.
func verdict(test, out string, err error) (caught bool, says string) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false, ""
	}
	if why := crash.FindString(out); why != "" {
		return false, why
	}
	_, failure, failed := strings.Cut(out, "--- FAIL: "+test+" ")
	for _, line := range message.FindAllStringSubmatch(out, -1) {
		says = line[1]
		if !strings.Contains(says, "of virtual time") && !strings.Contains(says, "check was active") { // the simulator's tally
			break
		}
	}
	if len(says) > 110 {
		says = says[:110] + "…"
	}
	return failed && failure != "", says
}

// overlay writes the mutated file, and what tells the compiler to read it.
func (l *lab) overlay(m mutant, name string) (string, error) {
	file, text, err := m.mutate(l.root)
	if err != nil {
		return "", err
	}
	instead := filepath.Join(l.tmp, name+filepath.Ext(file))
	if err := os.WriteFile(instead, []byte(text), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(l.root, filepath.FromSlash(file)): instead},
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(l.tmp, name+".json")
	return path, os.WriteFile(path, list, 0o600)
}

// build compiles the tests of a package.
func (l *lab) build(ctx context.Context, bin, pkg, overlay string) (string, error) {
	args := []string{"test", "-c", "-o", bin, "-ldflags=-s -w"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	return output(exec.CommandContext(ctx, "go", append(args, "./"+pkg)...), l.root)
}

// test runs a compiled test.
func (l *lab) test(ctx context.Context, bin string, c check) (string, error) {
	args := []string{"-test.v", "-test.run=^" + c.test + "$", "-test.timeout=" + testTimeout}
	if c.runs > 0 {
		args = append(args, fmt.Sprintf("-sim.seed=%d", l.seed), fmt.Sprintf("-sim.runs=%d", c.runs))
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "CI=true") // all cases of each test: elsewhere some draw fewer
	return output(cmd, filepath.Join(l.root, filepath.FromSlash(c.pkg)))
}

func output(cmd *exec.Cmd, dir string) (string, error) {
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	err := cmd.Run()
	return out.String(), err
}
