package browsertest

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
)

// An outage is seen while it happens, and so is its end: the script fetches what has changed.
func TestOutage(t *testing.T) {
	b := open(t, adminlimit.Options{Title: "limits"})
	use(b.lim, "alice", five, 3)
	for i := range 60 { // looked at, and nothing of them is used
		b.lim.Take(fmt.Sprint("idle", i), five, 0)
	}
	b.do(t, chromedp.Navigate(b.url))
	eval[bool](t, b, "window.same = true")
	b.until(t, `document.querySelector("#state .mode.synced strong") !== null && document.title === "limits: synced"`)
	b.redis.Kill()
	b.until(t, `document.querySelector("#state .mode.degraded strong")?.textContent === "degraded" && document.title === "limits: degraded"`)
	b.until(t, `document.querySelectorAll("#now svg rect.degraded").length === 3`)
	if err := b.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	b.until(t, `document.querySelector("#state .mode.synced strong") !== null && document.querySelector("#now svg rect.degraded") !== null`)
	if !eval[bool](t, b, "window.same === true") {
		t.Error("the page was loaded anew")
	}
	b.quiet(t)
}

// A key that is a script is text, also after the script has replaced a section. The policy lets the
// page's own style and script pass.
func TestHostileKey(t *testing.T) {
	const hostile = `"><script>document.title='owned'</script><img src=x onerror="document.title='owned'">`
	b := open(t, adminlimit.Options{Title: hostile, Authorise: func(*http.Request) (string, bool) { return "me", true }})
	use(b.lim, hostile, five, 6)
	b.do(t, chromedp.Navigate(b.url))
	b.until(t, fmt.Sprintf(`document.title === %q + ": synced"`, hostile))
	if !eval[bool](t, b, fmt.Sprintf(`document.querySelector("#keys").textContent.includes(%q)`, strconv.QuoteToASCII(hostile))) {
		t.Error("the key is not shown")
	}
	if eval[string](t, b, "getComputedStyle(document.querySelector('.mode')).borderTopLeftRadius") == "0px" {
		t.Error("the style is not in force")
	}
	n := eval[int](t, b, `document.querySelector("#now svg polyline").points.length`)
	b.until(t, fmt.Sprintf(`document.querySelector("#now svg polyline").points.length > %d`, n)) // replaced
	if n := eval[int](t, b, `document.images.length + document.scripts.length`); n != 1 {
		t.Errorf("%d images and scripts, and the page has one script", n)
	}
	b.quiet(t)
}

// Without script the page shows everything, and loads itself anew.
func TestWithoutScript(t *testing.T) {
	b := open(t, adminlimit.Options{})
	use(b.lim, "alice", five, 6)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.do(t, chromedp.Navigate(b.url))
	for _, s := range []string{"#state .mode", "#now svg polyline", "#keys tr.full", "#rules tbody tr", `head meta[http-equiv=refresh][content="5"]`} {
		if !eval[bool](t, b, fmt.Sprintf("document.querySelector(%q) !== null", s)) {
			t.Errorf("%s is missing", s)
		}
	}
	b.quiet(t)
}
