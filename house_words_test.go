package hybridlimit_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What people must read is bounded in words, and so are its sentences.

const (
	mostWords       = 30_000 // of all pages together, but for the ones below
	mostReadme      = 1_000
	mostReadmeLines = 120
	mostReadmeWidth = 120
	mostSentence    = 35 // words
	mostLong        = 0  // sentences that are longer
)

// uncounted are lists that grow with the project, and what programs write.
var uncounted = []string{"CHANGELOG.md", "hybrid/FAULTS.md", "bench/results/"}

// pagesToRead returns the pages that people read.
func pagesToRead(t *testing.T) (pages []string) {
	t.Helper()
	for _, p := range everything(t, ".") {
		hidden := strings.HasPrefix(p, ".") || strings.Contains(p, "/testdata/")
		if filepath.Ext(p) == ".md" && !hidden && !slices.ContainsFunc(uncounted, func(u string) bool { return strings.HasPrefix(p, u) }) {
			pages = append(pages, p)
		}
	}
	return pages
}

func TestHouseWords(t *testing.T) {
	total, long := 0, 0
	for _, p := range pagesToRead(t) {
		text := read(t, p)
		list := sentences(text)
		inAll, longest := 0, ""
		for _, s := range list {
			n := len(strings.Fields(s))
			if inAll += n; n > len(strings.Fields(longest)) {
				longest = s
			}
			if n > mostSentence {
				long++
				t.Logf("%s: %d words: %s", p, n, s)
			}
		}
		words := len(strings.Fields(text))
		total += words
		t.Logf("%-36s %6d words, %2d in a sentence, %2d in the longest", p, words, inAll/max(len(list), 1), len(strings.Fields(longest)))
		if p == "README.md" && words > mostReadme {
			t.Errorf("README.md has %d words, more than %d", words, mostReadme)
		}
	}
	t.Logf("%d words in all, %d sentences above %d words", total, long, mostSentence)
	if total > mostWords || long > mostLong {
		t.Errorf("%d words (at most %d), %d sentences above %d words (at most %d)", total, mostWords, long, mostSentence, mostLong)
	}
}

var (
	inCode      = regexp.MustCompile("`[^`]*`")
	sentenceEnd = regexp.MustCompile(`[.!?]["')*]*(\s|$)`)
	listItem    = regexp.MustCompile(`^\s*([-*]|\d+\.)\s`)
)

// sentences returns the sentences of a page, without those in code. A cell of a table and an item of a list
// end a sentence.
func sentences(page string) (list []string) {
	page = fenced.ReplaceAllString(page, "")
	var block strings.Builder
	end := func() {
		for _, s := range sentenceEnd.Split(block.String(), -1) {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
		block.Reset()
	}
	for line := range strings.Lines(page) {
		line = link.ReplaceAllString(inCode.ReplaceAllString(strings.TrimRight(line, "\n"), "x"), "]")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			end()
		case strings.HasPrefix(strings.TrimSpace(line), "|"):
			for cell := range strings.SplitSeq(line, "|") {
				end()
				block.WriteString(cell)
			}
			end()
		default:
			if listItem.MatchString(line) {
				end()
			}
			block.WriteString(line + " ")
		}
	}
	end()
	return list
}

func TestHouseSentences(t *testing.T) {
	got := sentences("# Title\n\nOne `a. b` two. Three\nfour:\n\n| a b | c. d |\n| --- | --- |\n- item one\n- item\n  two\n\n```\nno code. here\n```\n[five](x.md#y). Six!\n")
	want := []string{"One x two", "Three four:", "a b", "c", "d", "---", "---", "- item one", "- item   two", "[five]", "Six"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
