package redistest

import (
	"context"
	"crypto/sha1"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// front is a hook of a client that puts a text in front of each script. Scripts become known to it
// when their text is sent.
type front struct {
	text   string
	except []string
	mu     sync.Mutex
	sums   map[string]string
}

// NewFront returns a hook that puts a text in front of each script, but those that are named.
func NewFront(text string, except ...string) redis.Hook {
	return &front{text: text, except: except, sums: map[string]string{}}
}

func (h *front) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *front) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.change(cmd.Args())
		return next(ctx, cmd)
	}
}

func (h *front) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.change(cmd.Args())
		}
		return next(ctx, cmds)
	}
}

// change changes the arguments of a command that runs a script.
func (h *front) change(args []any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := func(text string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(text))) }
	switch args[0] {
	case "eval":
		if text := args[1].(string); !slices.Contains(h.except, text) {
			h.sums[sum(text)] = sum(h.text + text)
			args[1] = h.text + text
		}
	case "evalsha":
		if s, ok := h.sums[args[1].(string)]; ok {
			args[1] = s
		}
	}
}
