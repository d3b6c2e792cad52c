package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// plan is how long to measure.
type plan struct {
	bench, benchtime        string
	count                   int
	memoryKeys, memoryCount int
	accuracyRuns            int
	costPasses              int
	costRows                string
	smallFor                time.Duration
	smallRows               string
}

// runner runs a command in a directory and returns what it prints.
type runner func(ctx context.Context, dir string, words ...string) (string, error)

// execute also shows what is printed, as it comes: it may take long, and is all
// that is left if the command fails in the end.
func execute(ctx context.Context, dir string, words ...string) (string, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, io.MultiWriter(&out, os.Stderr), os.Stderr
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w", strings.Join(words, " "), err)
	}
	return out.String(), nil
}

// measurement writes raw files.
type measurement struct {
	root, dir string
	plan      plan
	do        runner
	tell      io.Writer
}

// longest is how long one command may take: far more than it should.
const longest = "-timeout=6h"

// The times of the part cost, with which five passes take less than a quarter of an hour: as
// long as reports wait for company, and some of those.
const (
	costWarm    = "1s"
	costMeasure = "2s"
)

// nobody is a pattern that no test has the name of.
const nobody = "^$"

// run measures the parts one after the other, so that they do not disturb each
// other.
func (m *measurement) run(ctx context.Context, parts []string) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	for _, part := range parts {
		fmt.Fprintf(m.tell, "measuring: %s\n", part)
		command, text, err := m.measure(ctx, part)
		if err != nil {
			return err
		}
		if err := os.WriteFile(rawFile(m.dir, part), []byte(m.header(ctx, command)+clean(text)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// measure returns what was measured and a command that does the same.
func (m *measurement) measure(ctx context.Context, part string) (command, text string, err error) {
	var words []string
	switch part {
	case partBench:
		return m.passes(ctx)
	case partMemory:
		words = []string{
			"go", "test", "-run", nobody, "-bench", "^BenchmarkMemory$", "-count", strconv.Itoa(m.plan.memoryCount),
			"-benchtime", "1x", longest, "./bench", "-memory.keys", strconv.Itoa(m.plan.memoryKeys),
		}
	case partCost:
		words = []string{
			"go", "run", "./bench/cost", "-passes", strconv.Itoa(m.plan.costPasses), "-warm", costWarm, "-measure", costMeasure, "-run", m.plan.costRows,
		}
	case partSmall:
		words = []string{"go", "run", "./bench/small", "-for", m.plan.smallFor.String(), "-run", m.plan.smallRows}
	case partOutage:
		text, err = m.outage(ctx)
		return "go run ./bench/report -parts outage", text, err
	default:
		text, err = m.accuracy(ctx)
		return "go run ./bench/report -parts accuracy -accuracy.runs " + strconv.Itoa(m.plan.accuracyRuns), text, err
	}
	text, err = m.do(ctx, m.root, words...)
	return quote(words), text, err
}

// passes measures everything so many times, one time after the other: with all runs of
// a benchmark in a row, a machine that is slow for a minute would put one limiter in
// the wrong against the others.
func (m *measurement) passes(ctx context.Context) (command, text string, err error) {
	words := []string{
		"go", "test", "-run", nobody, "-bench", m.plan.bench, "-skip", "^BenchmarkMemory$", // has a part of its own
		"-count", "1", "-benchtime", m.plan.benchtime, longest, "./bench", "-full",
	}
	for pass := range m.plan.count {
		fmt.Fprintf(m.tell, "pass %d of %d\n", pass+1, m.plan.count)
		out, err := m.do(ctx, m.root, words...)
		if err != nil {
			return "", "", err
		}
		text += out
	}
	return fmt.Sprintf("%s (%d times)", quote(words), m.plan.count), text, nil
}

// accuracy runs the fleets in virtual time, of the code as it is and of the
// mutant without the trigger. Both at once: there a busy machine changes nothing.
func (m *measurement) accuracy(ctx context.Context) (string, error) {
	tmp, err := os.MkdirTemp("", "report")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	overlay, err := m.do(ctx, m.root, "go", "run", "./internal/verify/mutants", "-run", "^no-near-limit-trigger$", "-overlay", tmp)
	if err != nil {
		return "", err
	}
	var texts [2]string
	var g errgroup.Group
	for i, code := range []string{withTrigger, withoutTrigger} {
		g.Go(func() error {
			words := []string{"go", "test", "-count", "1", "-run", "^TestAccuracy$", longest}
			if code == withoutTrigger {
				words = append(words, "-overlay", strings.TrimSpace(overlay))
			}
			file := filepath.Join(tmp, code)
			words = append(words, "./bench", "-accuracy", file, "-accuracy.name", code, "-accuracy.runs", strconv.Itoa(m.plan.accuracyRuns))
			if _, err := m.do(ctx, m.root, words...); err != nil {
				return err
			}
			text, err := os.ReadFile(file)
			texts[i] = string(text)
			return err
		})
	}
	err = g.Wait()
	return texts[0] + texts[1], err
}

// header describes the machine, without saying which one it is.
func (m *measurement) header(ctx context.Context, command string) string {
	version := "none"
	if out, err := m.do(ctx, m.root, "redis-server", "--version"); err == nil {
		if found := redisVersion.FindStringSubmatch(out); found != nil {
			version = found[1]
		}
	} else if !errors.Is(err, exec.ErrNotFound) {
		version = "unknown"
	}
	return fmt.Sprintf("command: %s\nmachine: %d CPUs, %s/%s\nprocs: %d\ngo: %s\nredis: %s\n",
		command, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), strings.TrimPrefix(runtime.Version(), "go"), version)
}

var redisVersion = regexp.MustCompile(`v=(\S+)`)

// clean drops the lines that say whether tests passed and how long they took.
func clean(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "PASS" && strings.TrimSpace(word) != "ok" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// quote writes a command as a shell would read it.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; strings.ContainsAny(w, "^$|*()[] ") {
			quoted[i] = "'" + w + "'"
		}
	}
	return strings.Join(quoted, " ")
}
