package hybrid

import (
	"strings"
	"testing"
	"time"
)

// A key in a log line is short, on one line, and looks like no other field.
func FuzzEscaped(f *testing.F) {
	for _, key := range []string{"", "user:42", "\n", `"`, "é", strings.Repeat("x", 62), strings.Repeat("x", 63), strings.Repeat("\xff", 1<<10), strings.Repeat("é", 31)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		text := escaped(key)
		if len(text) > maxLoggedKey || text[0] != '"' || text[len(text)-1] != '"' {
			t.Errorf("%q: %d bytes: %s", key, len(text), text)
		}
		for _, r := range strings.TrimSuffix(text, `…"`) {
			if r < ' ' || r > '~' {
				t.Errorf("%q: %q in it", key, r)
			}
		}
		if len(key) <= 10 && strings.Contains(text, "…") {
			t.Errorf("%q is cut: %s", key, text)
		}
	})
}

func TestThrottle(t *testing.T) {
	var l throttle
	at, admitted := time.Hour, 0
	for range 100 {
		if skipped, ok := l.admit(at); ok {
			if admitted++; skipped != 0 {
				t.Errorf("%d skipped", skipped)
			}
		}
	}
	if admitted != logBurst {
		t.Errorf("%d at once, want %d", admitted, logBurst)
	}
	if w := l.wait(at); w != logEvery {
		t.Errorf("the next one in %v", w)
	}
	if skipped, ok := l.admit(at + logEvery); !ok || skipped != 100-logBurst {
		t.Errorf("%d skipped, %v", skipped, ok)
	}
	if _, ok := l.admit(at + logEvery); ok {
		t.Error("two in its place")
	}
}
