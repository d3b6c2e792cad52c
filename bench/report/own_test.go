package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// pagesOf makes the page and the plot of a part from a directory's raw file, and returns both.
func pagesOf(t *testing.T, part, from string) (page, plot string) {
	t.Helper()
	out := t.TempDir()
	if err := run(t.Context(), []string{"-parts", part, "-from", from, "-out", out}, nil, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(out); err != nil || len(files) != 2 {
		t.Errorf("%d files were written, not one page and one plot: %v", len(files), err)
	}
	return readText(t, filepath.Join(out, ownPages[part].page)), readText(t, filepath.Join(out, ownPages[part].plot))
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The pages that the recorded lines in testdata make, by hand checked once.
func TestGoldenOwnPages(t *testing.T) {
	for part, own := range ownPages {
		golden := filepath.Join("testdata", "golden-"+own.page)
		got, plot := pagesOf(t, part, "testdata")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := readText(t, golden); got != want {
			t.Errorf("the page differs from %s (-update rewrites it):\n%s", golden, got)
		}
		if !strings.HasPrefix(plot, "<?xml") || !strings.Contains(plot, "</svg>") {
			t.Errorf("%s: %.80q is no SVG", part, plot)
		}
	}
}

// Pages and plots that are recorded are what the raw files beside them make.
func TestRecordedOwnPages(t *testing.T) {
	const dir = "../results"
	for part, own := range ownPages {
		if _, err := os.Stat(rawFile(dir, part)); err != nil {
			t.Logf("%s is not recorded: %v", part, err)
			continue
		}
		page, plot := pagesOf(t, part, dir)
		if page != readText(t, filepath.Join(dir, own.page)) {
			t.Errorf("%s is not what its raw file makes: go run ./bench/report -parts %s -from bench/results", own.page, part)
		}
		// Other processors round a coordinate in another way.
		if runtime.GOARCH == "amd64" && plot != readText(t, filepath.Join(dir, own.plot)) {
			t.Errorf("%s is not what its raw file makes: go run ./bench/report -parts %s -from bench/results", own.plot, part)
		}
	}
}
