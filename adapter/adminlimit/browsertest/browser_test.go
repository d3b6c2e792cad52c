package browsertest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it reports every failed dial
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// within bounds each wait: much longer than it takes on a machine that has other work.
const within = 90 * time.Second

var five = limit.Must(limit.PerHour("logins", 5))

// tab is a browser of its own, with the page of a limiter.
type tab struct {
	ctx   context.Context
	url   string
	lim   *hybrid.Limiter
	redis *redistest.Server

	mu       sync.Mutex // protects what follows
	problems []string   // errors on the console, exceptions, and what the policy has stopped
}

// node returns a limiter with a client of its own.
func node(t *testing.T, addr string, o hybrid.Options) *hybrid.Limiter {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	lim, err := hybrid.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// open starts a Redis, a limiter, its page below /limits/, and a browser, which shows nothing yet.
func open(t *testing.T, o adminlimit.Options) *tab {
	t.Helper()
	path := program(t)
	b := &tab{redis: redistest.Start(t)}
	b.lim = node(t, b.redis.Addr(), hybrid.Options{NodeName: "web-1"})
	page, err := adminlimit.New(b.lim, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	mux := http.NewServeMux()
	mux.Handle("/limits/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b.url = server.URL + "/limits/"

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the browser refuses to start for root with it
	}
	all, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(all, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}

// program returns the browser. Without one the test is skipped; with CI=true it fails.
func program(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const text = "needs a browser: none of chromium, chromium-browser and google-chrome is in PATH"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

// listen keeps what is wrong. The browser reports violations of the policy in its log.
func (b *tab) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		text = "console: " + string(e.Type)
	case *log.EventEntryAdded:
		text = string(e.Entry.Source) + ": " + e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

// quiet fails if the browser has reported anything.
func (b *tab) quiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		t.Error("the browser says:", p)
	}
}

// do runs actions.
func (b *tab) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns what an expression is in the page.
func eval[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to become true in a page that is loaded to its end: what is read of
// the page next is there then. It survives that the page is replaced.
func (b *tab) until(t *testing.T, expression string) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.ctx, within)
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.readyState === "complete" && (`+expression+`)`))
		cancel()
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s (%v)\n%s", expression, err, eval[string](t, b, "document.body.innerText"))
		}
	}
}

// media sets the preferred colours.
func (b *tab) media(t *testing.T, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		t.Fatal(err)
	}
}

// use asks a limiter n times for one unit, and returns how many it has admitted.
func use(lim *hybrid.Limiter, key string, rule *limit.Rule, n int) (admitted int) {
	for range n {
		if lim.Allow(key, rule) {
			admitted++
		}
	}
	return admitted
}
