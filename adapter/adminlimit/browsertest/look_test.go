package browsertest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/limit"
)

// file is a rules file whose text on disk is wrong.
type file struct{}

func (file) Path() string                 { return "/etc/hybridlimit/rules.yaml" }
func (file) InForce() (string, time.Time) { return "rules:\n  logins: 5 per hour\n", time.Unix(1e9, 0) }
func (file) OnDisk() (string, string, int) {
	return "rules:\n  logins: five per hour # " + strings.Repeat("long ", 40), "rules.yaml:2:11: five is no number", 2
}
func (file) Names() []string                             { return []string{"logins"} }
func (file) Reload() error                               { return nil }
func (file) CounterKey(_, key string) (string, error)    { return key, nil }
func (file) Lookup(_, _, _ string) (*limit.Rule, string) { return five, "rule logins" }

// full opens a page that has all that there may be on it: long keys, forms, a look-up, a rules file.
func full(t *testing.T) *tab {
	t.Helper()
	b := open(t, adminlimit.Options{Rules: file{}, Authorise: func(*http.Request) (string, bool) { return "me", true }})
	use(b.lim, strings.Repeat("x", 200), five, 6)
	use(b.lim, "alice", five, 2)
	return b
}

// lookedUp shows the page with a look-up.
func (b *tab) lookedUp(t *testing.T, key string) {
	t.Helper()
	b.do(t, chromedp.Navigate(b.url), chromedp.SetValue(chromedp.CSS(`#search input[name=key]`), key), chromedp.Click(chromedp.CSS(`#search button`)))
	b.until(t, `document.querySelector("#look article") !== null && document.readyState === "complete"`)
}

// On a phone nothing is wider than the screen, the search can be seen without scrolling, and the columns
// of tables are wide enough to read: a table scrolls rather than to break words.
func TestPhone(t *testing.T) {
	b := full(t)
	b.do(t, chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(b.url))
	if n := eval[float64](t, b, `document.querySelector("#search button").getBoundingClientRect().bottom`); n > 844 {
		t.Errorf("the search ends %v px below the top", n)
	}
	if n := eval[float64](t, b, `Math.min(...[...document.querySelectorAll("#keys td:first-child")].map(e => e.clientWidth))`); n < 100 {
		t.Errorf("the column of the keys is %v px wide", n)
	}
	b.lookedUp(t, strings.Repeat("x", 200))
	if wide := eval[int](t, b, "document.documentElement.scrollWidth - 360"); wide > 0 || eval[int](t, b, "innerWidth") != 360 {
		t.Errorf("%d px too wide: %s", wide, eval[string](t, b, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 360).map(e => e.outerHTML.slice(0, 80)).join("\n")`))
	}
}

// contrasts returns the selectors whose text has a contrast below 4.5 to what is behind it (WCAG 2).
const contrasts = `(() => {
	const rgb = text => { const v = text.match(/[\d.]+/g).map(Number); return v.length > 3 && v[3] === 0 ? null : v };
	const behind = e => { for (; e; e = e.parentElement) { const v = rgb(getComputedStyle(e).backgroundColor); if (v) return v } return [255, 255, 255] };
	const light = v => { const [r, g, b] = v.slice(0, 3).map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
	const bad = [];
	for (const s of ["body", ".mode", "th", "td", "label", "input", "button", "figcaption", "figcaption .top", ".axis", "dt", "dd", "a", ".wrong", ".wrong dt", ".done", ".done dt", ".unsure", ".unsure dt", "pre", ".n", "mark"]) {
		const list = [...document.querySelectorAll(s)];
		if (!list.length) bad.push(s + " is not there");
		for (const e of list) {
			const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
			const c = (a + .05) / (b + .05);
			if (c < 4.5) { bad.push(s + " " + c.toFixed(2)); break }
		}
	}
	return bad;
})()`

// Texts can be read by day and in the dark, and in every mode.
func TestContrast(t *testing.T) {
	b := full(t)
	for _, scheme := range []string{"light", "dark"} {
		b.media(t, scheme)
		for _, key := range []string{"alice", strings.Repeat("x", 200)} {
			b.lookedUp(t, key)
			if dark := eval[bool](t, b, "matchMedia('(prefers-color-scheme: dark)').matches"); dark != (scheme == "dark") {
				t.Fatalf("%s is not emulated", scheme)
			}
			// What this page does not show at present.
			eval[bool](t, b, `document.querySelector("main").insertAdjacentHTML("beforeend", ["synced", "degraded", "resyncing", "local-only", "closed"].map(m => '<p class="mode ' + m + '">text</p>').join("") +
				'<div class="done"><dl><dt>text</dt></dl></div><div class="wrong"><dl><dt>text</dt></dl></div><div class="unsure"><dl><dt>text</dt></dl></div>') === undefined`)
			for _, bad := range eval[[]string](t, b, contrasts) {
				t.Errorf("%s: %s", scheme, bad)
			}
		}
	}
}

// Each input has a label, each table heads, each plot a description: for those who do not see them.
func TestNames(t *testing.T) {
	b := full(t)
	b.lookedUp(t, "alice")
	for what, expression := range map[string]string{
		"inputs without a label":        `[...document.querySelectorAll("input:not([type=hidden])")].filter(e => !e.labels.length || !e.labels[0].textContent.trim()).length`,
		"buttons without a text":        `[...document.querySelectorAll("button")].filter(e => !e.textContent.trim()).length`,
		"heads without a scope":         `document.querySelectorAll("th:not([scope])").length`,
		"tables without heads":          `[...document.querySelectorAll("table")].filter(e => !e.querySelector("thead th")).length`,
		"plots without a description":   `document.querySelectorAll("svg:not([role=img][aria-label])").length`,
		"sections without a name":       `[...document.querySelectorAll("section")].filter(e => !e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby"))).length`,
		"elements with the same id":     `(l => l.length - new Set(l).size)([...document.querySelectorAll("[id]")].map(e => e.id))`,
		"links to what is not there":    `[...document.querySelectorAll("a[href^='#']")].filter(e => !document.querySelector(e.getAttribute("href"))).length`,
		"scrolled parts without a stop": `[...document.querySelectorAll("pre")].filter(e => e.tabIndex < 0).length`,
	} {
		if n := eval[int](t, b, expression); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// A row is reached and pressed with the keyboard alone, looks its own key up, and shows its spaces.
func TestRowsByKeyboard(t *testing.T) {
	b := open(t, adminlimit.Options{})
	for i, key := range []string{"alice", "a  b", "\xff"} {
		use(b.lim, key, five, 1+i)
	}
	b.do(t, chromedp.Navigate(b.url))
	b.until(t, `document.querySelectorAll("#keys tbody button").length === 3`)
	// innerText joins spaces as the eye does, unless the style keeps them.
	if !eval[bool](t, b, `[...document.querySelectorAll("#keys tbody button")].some(e => e.innerText === '"a  b"')`) {
		t.Error("spaces of a key are joined")
	}
	eval[bool](t, b, `window.at = document.querySelector("#now-title"), window.at.tabIndex = -1, window.at.focus(), true`)
	for range 40 {
		if eval[bool](t, b, `document.activeElement.innerText === '"\\xff"'`) {
			break
		}
		b.do(t, chromedp.KeyEvent("\t"))
	}
	b.do(t, chromedp.KeyEvent("\r"))
	b.until(t, `document.querySelector("#look h3 code")?.innerText === '"\\xff"' && document.querySelector("#look h3").textContent.includes("admitted")`)
	b.quiet(t)
}

// Who reads a table of the part that is replaced each second stays there.
func TestFocusStays(t *testing.T) {
	b := full(t)
	b.do(t, chromedp.Navigate(b.url))
	b.until(t, `document.querySelector("#now .wide") !== null`)
	eval[bool](t, b, `document.querySelector("#now .wide").focus(), window.was = document.querySelector("#now"), true`)
	b.until(t, `document.querySelector("#now") !== window.was`)
	if !eval[bool](t, b, `document.activeElement === document.querySelector("#now .wide")`) {
		t.Error("the focus has gone")
	}
}
