package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

// The scripts, by the name of their file.
var (
	// The slow path of a batch is in a function, which is called only when it is needed.
	scriptBatch = compose("local function make_long(...)\n", text("base", "lib", "lib_funnel", "lib_window", "long"), "end\n", text("base", "clock", "batch"))
	// A call for one kind of counter does not pay for the others. "" is for several kinds.
	scriptTake   = map[string]*script{"f": newTake("funnel"), "w": newTake("window"), "l": newTake("log"), "": newTake("funnel", "window", "log")}
	scriptRenew  = newScript("lib_funnel", "lib_window", "lib_log", "renew")
	scriptRefund = newScript("lib_funnel", "lib_window", "lib_log", "refund")
	scriptBeat   = newScript("ledger", "beat")
	scriptSeq    = newScript("ledger", "seq")
	scriptNodes  = newScript("nodes")
)

// script is a Lua program and the name under which Redis caches it.
type script struct{ source, sha string }

// text returns the concatenated text of script files.
func text(names ...string) (all string) {
	for _, name := range names {
		one, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the files are embedded
		}
		all += string(one)
	}
	return all
}

// newScript makes a script of the files that all share and those of its own.
func newScript(names ...string) *script {
	return compose(text("base", "clock", "lib"), text(names...))
}

// newTake makes the script that takes units, for the given kinds of counters.
func newTake(kinds ...string) *script {
	parts := []string{text("base", "clock", "lib"), "local kinds = {}\n"}
	for _, kind := range kinds {
		parts = append(parts, text("lib_"+kind, kind))
	}
	return compose(append(parts, text("take"))...)
}

// compose makes one script of parts.
func compose(parts ...string) *script {
	source := bare(strings.Join(parts, ""))
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// bare drops comment lines and indentation, which make up half of a script.
// No string in the scripts spans lines.
func bare(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// once is a command that go-redis sends only once. By default go-redis sends a
// command again when the reply is lost or late, so that a script may run four
// times and a deadline means little. Redirects of a cluster are still followed:
// there the first server has not executed anything.
type once struct{ *redis.Cmd }

// NoRetry keeps go-redis from sending the command again.
func (once) NoRetry() bool { return true }

// Clone keeps NoRetry for the copies that go-redis makes.
func (c once) Clone() redis.Cmder {
	return once{Cmd: c.Cmd.Clone().(*redis.Cmd)}
}

// call is one command to send, and then its outcome.
type call struct {
	script *script // nil: args is the whole command
	keys   []string
	args   []any
	keyAt  int8 // without a script: index in args of what selects the server, if the client does not know it
	byText bool // send the script itself, not only its hash
	val    any
	err    error
}

// command builds the command to send.
func (c *call) command(ctx context.Context) once {
	if c.script == nil {
		cmd := redis.NewCmd(ctx, c.args...)
		cmd.SetFirstKeyPos(c.keyAt)
		return once{cmd}
	}
	name, script := "evalsha", c.script.sha
	if c.byText {
		name, script = "eval", c.script.source
	}
	args := append(make([]any, 0, 3+len(c.keys)+len(c.args)), name, script, len(c.keys), c.keys[0])
	for i := 1; i < len(c.keys); i++ {
		args = append(args, &c.keys[i]) // a pointer: go-redis accepts it, too, and nothing is allocated
	}
	return once{redis.NewCmd(ctx, append(args, c.args...)...)}
}

// do sends one call.
func (s *Store) do(ctx context.Context, c *call) {
	s.pipeline(ctx, []*call{c})
	s.connect(c)
}

// connectTimeout is how long it may take to make a connection for later calls.
const connectTimeout = 2 * time.Second

// connect makes a connection for later calls if c had no answer in time. It does not wait for
// it. A connection to a distant server takes several round trips to make, and the client drops
// one that is not ready when the call ends: no call would ever have an answer.
func (s *Store) connect(c *call) {
	_, reason := Classify(c.err)
	if reason != "timeout" || len(c.keys) == 0 || s.timeout >= connectTimeout || !s.dialing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.dialing.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		_ = guarded(func() error { return s.rdb.Process(ctx, once{redis.NewCmd(ctx, "get", c.keys[0])}) }) // its answer is not needed
	}()
}

// reroute makes a cluster's client reload the servers of the slots if a call has
// failed: by itself it would notice a failover only after up to a minute. It does
// not wait for the answer.
func (s *Store) reroute(ctx context.Context, calls []*call) {
	client, ok := s.rdb.(interface{ ReloadState(context.Context) })
	if ok && slices.ContainsFunc(calls, func(c *call) bool { class, _ := Classify(c.err); return class == ClassUnavailable }) {
		client.ReloadState(ctx)
	}
}

// pipeline sends several calls in one pipeline, or a single call by itself.
func (s *Store) pipeline(ctx context.Context, calls []*call) {
	ctx, cancel := s.Deadline(ctx)
	defer cancel()
	for _, c := range calls {
		_, c.byText = s.lacking.Load(c.script)
	}
	s.sendKnown(ctx, calls)
	s.reroute(ctx, calls)
}

// sendKnown sends calls. Only those whose script Redis does not have (it was
// restarted, promoted, or flushed) are sent once more.
//
// They are sent with the script's text instead of after a SCRIPT LOAD: EVAL reaches the
// right master of a cluster by the same route, needs no second round trip or permission,
// works while another master is down, and also leaves the script in the cache.
//
// On a Cluster a pipeline lasts until every server has answered: while one is silent there is
// no time for the second round. Then the next pipeline carries the text at once.
func (s *Store) sendKnown(ctx context.Context, calls []*call) {
	s.send(ctx, calls)
	var missing []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") && c.script != nil {
			c.byText = true
			missing = append(missing, c)
			s.lacking.Store(c.script, true)
		}
	}
	s.send(ctx, missing)
	for _, c := range calls {
		if c.byText && (c.err == nil || Answered(c.err)) {
			s.lacking.Delete(c.script)
		}
	}
}

func (s *Store) send(ctx context.Context, calls []*call) {
	if len(calls) == 0 {
		return
	}
	if len(calls) == 1 { // which costs less than a pipeline of one
		cmd := calls[0].command(ctx)
		calls[0].finish(cmd, guarded(func() error { return s.rdb.Process(ctx, cmd) }))
		return
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]once, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx)
		_ = pipe.Process(ctx, cmds[i]) // queues; cannot fail
	}
	err := guarded(func() error {
		_, err := pipe.Exec(ctx)
		return err
	})
	for i, c := range calls {
		each := cmds[i].Err()
		if each == nil && cmds[i].Val() == nil {
			// If Redis refuses to set up the connection (a wrong password),
			// or the client panics, only Exec returns the error.
			each = err
		}
		c.finish(cmds[i], each)
	}
}

// guarded calls the client, and returns its panic as an error: go-redis panics at a
// length near 2^63, and so may hooks that its owner has added. The caller, a handler
// of requests or the one goroutine that reconciles, must survive that.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errPanic, r)
		}
	}()
	return f()
}

// finish stores a command's outcome. A reply that was read completely before the
// rest of a pipeline was lost is valid, although go-redis marks all commands of the
// pipeline as failed.
func (c *call) finish(cmd once, err error) {
	c.val, c.err = cmd.Val(), err
	if c.val != nil && err != nil && !Answered(err) {
		c.err = nil
	}
}
