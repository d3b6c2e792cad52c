package browsertest

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
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

// A key is looked up by the form, and is in no address.
func TestLookUp(t *testing.T) {
	b := open(t, adminlimit.Options{})
	use(b.lim, "mallory@example.com", five, 7)
	b.do(t, chromedp.Navigate(b.url), chromedp.SendKeys(chromedp.CSS(`#search input[name=key]`), "mallory@example.com\r"))
	b.until(t, `/refused/.test(document.querySelector("#look h3")?.textContent) && /used up/.test(document.querySelector("#look").textContent)`)
	if at := eval[string](t, b, "location.href"); at != b.url+"look#search" {
		t.Errorf("the address is %s", at)
	}
	b.until(t, `document.querySelector("#state .mode.synced") !== null && document.querySelector("#now svg polyline").points.length > 2`) // the script is at work here, too
	b.quiet(t)
}

// Where Redis knows more than this node a look-up is neither green nor red.
func TestUsedUpInRedis(t *testing.T) {
	b := open(t, adminlimit.Options{})
	use(b.lim, "alice", five, 1)
	if err := b.lim.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := node(t, b.redis.Addr(), hybrid.Options{NoNotices: true})
	use(other, "alice", five, 4)
	if err := other.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.lookedUp(t, "alice")
	colour := func(selector string) string {
		return eval[string](t, b, fmt.Sprintf("getComputedStyle(document.querySelector(%q)).backgroundColor", selector))
	}
	eval[bool](t, b, `document.querySelector("main").insertAdjacentHTML("beforeend", '<p class="done">a</p><p class="wrong">b</p>') === undefined`)
	if is := colour("#look article"); is == colour("p.done") || is == colour("p.wrong") || !eval[bool](t, b, `/this node has not heard of it yet/.test(document.querySelector("#look").textContent)`) {
		t.Errorf("%s: %s", is, eval[string](t, b, `document.querySelector("#look").innerText`))
	}
}

// A key that is a script is text: in the list, in a look-up, in what is said of an act, and after the
// script has replaced a section. The policy lets the page's own style and script pass.
func TestHostileKey(t *testing.T) {
	const hostile = `"><script>document.title='owned'</script><img src=x onerror="document.title='owned'">`
	b := open(t, adminlimit.Options{Title: hostile, Authorise: func(*http.Request) (string, bool) { return "me", true }})
	use(b.lim, hostile, five, 6)
	text := func() {
		t.Helper()
		b.until(t, fmt.Sprintf(`document.title === %q + ": synced"`, hostile))
		if n := eval[int](t, b, `document.images.length + document.scripts.length`); n != 1 {
			t.Errorf("%d images and scripts, and the page has one script", n)
		}
		if !eval[bool](t, b, fmt.Sprintf(`document.querySelector("#keys").textContent.includes(%q)`, strconv.QuoteToASCII(hostile))) {
			t.Error("the key is not shown")
		}
		if eval[string](t, b, "getComputedStyle(document.querySelector('.mode')).borderTopLeftRadius") == "0px" {
			t.Error("the style is not in force")
		}
		n := eval[int](t, b, `document.querySelector("#now svg polyline").points.length`)
		b.until(t, fmt.Sprintf(`document.querySelector("#now svg polyline").points.length > %d`, n)) // replaced
	}
	b.do(t, chromedp.Navigate(b.url))
	text()
	b.do(t, chromedp.SetValue(chromedp.CSS(`#search input[name=key]`), hostile), chromedp.Click(chromedp.CSS(`#search button`)))
	b.until(t, `document.querySelector("#look") !== null`)
	text()
	b.do(t, chromedp.SetValue(chromedp.CSS(`.acts input[name=rule]`), "logins"), chromedp.Click(chromedp.CSS(`.acts button[value=reset]`)))
	b.until(t, `/0 units are used/.test(document.querySelector("p.done")?.textContent)`)
	if n := eval[int](t, b, `document.images.length + document.scripts.length`); n != 1 {
		t.Errorf("%d images and scripts after an act", n)
	}
	b.quiet(t)
}

// A reset needs an authorisation.
func TestReset(t *testing.T) {
	asked := make(chan string, 10)
	b := open(t, adminlimit.Options{Authorise: func(r *http.Request) (string, bool) {
		name, password, _ := r.BasicAuth()
		asked <- name
		return name, password == "secret"
	}})
	use(b.lim, "alice", five, 6)
	used := func() int64 { return 5 - b.lim.Peek("alice", five).Remaining }
	reset := func(authorization string) {
		t.Helper()
		headers := network.Headers{}
		if authorization != "" {
			headers["Authorization"] = authorization
		}
		_, err := chromedp.Call(b.ctx, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: headers})
		if err != nil {
			t.Fatal(err)
		}
		b.do(t, chromedp.Navigate(b.url), chromedp.SetValue(chromedp.CSS(`.acts input[name=key]`), "alice"),
			chromedp.SetValue(chromedp.CSS(`.acts input[name=rule]`), "logins"), chromedp.Click(chromedp.CSS(`.acts button[value=reset]`)))
	}
	reset("") // the browser asks for a name and a password, and nobody answers
	if name := <-asked; name != "" || used() != 5 {
		t.Errorf("%q asked, and %d units are used", name, used())
	}
	reset("Basic YW5uOndyb25n") // ann:wrong
	b.until(t, `/you may not/.test(document.querySelector("p.wrong")?.textContent)`)
	if name := <-asked; name != "ann" || used() != 5 {
		t.Errorf("%q asked, and %d units are used", name, used())
	}
	reset("Basic YW5uOnNlY3JldA==") // ann:secret
	b.until(t, `/0 units are used/.test(document.querySelector("p.done")?.textContent)`)
	if used() != 0 {
		t.Errorf("%d units are used after a reset", used())
	}
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
