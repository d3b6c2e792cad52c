package redisstore

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// What only an operator can end has words of its own, and nothing else has.
func TestRefusals(t *testing.T) {
	for _, p := range prefixes {
		text := Refusal(p.reason)
		if (text != "") != (p.class == ClassMisconfigured) || strings.HasSuffix(text, ".") {
			t.Errorf("%s, %v: %q", p.reason, p.class, text)
		}
	}
	for _, reason := range []string{"", "error", "refused", "timeout"} {
		if text := Refusal(reason); text != "" {
			t.Errorf("%s: %q", reason, text)
		}
	}
}

func TestAnswered(t *testing.T) {
	for err, want := range map[error]bool{nil: false, io.EOF: false, ErrBadReply: false, reply("OOM x"): true, Wrap(fmt.Errorf("x: %w", reply("NOAUTH x"))): true} {
		if Answered(err) != want {
			t.Errorf("%v: want %t", err, want)
		}
	}
}
