package adminlimit_test

import (
	"html"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// lookalikes are keys that look alike where spaces are joined or letters are only drawn.
var lookalikes = []string{
	"alice", " alice", "alice ", "Alice", "a b", "a  b", "a\tb", "a\u00a0b", "аlice" /* the first letter is Cyrillic */, "ali\u200bce",
	"é", "e\u0301", "\xff", "\xfe", "\ufffd", "a\nb", `a\nb`, `"alice "`, "", "日本", "\u202ealice", "a\x00b",
}

var rowKeys = regexp.MustCompile(`name="exact" value="([^"]*)"><input type="hidden" name="rule" value="logins"><button><code>([^<]*)</code>`)

// Keys that differ look different, whatever bytes they have, and each row looks up its own key.
//
// Fault 115: keys that look alike on the page.
func TestKeysThatLookAlike(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{Authorise: func(*http.Request) (string, bool) { return "me", true }})
	for _, key := range lookalikes {
		h.Limiter.Allow(key, five)
	}
	shown := map[string]bool{}
	for _, m := range rowKeys.FindAllStringSubmatch(s.get(t, "/limits/"), -1) {
		key, err := strconv.Unquote(html.UnescapeString(m[1]))
		text := html.UnescapeString(m[2])
		if shown[text] = true; err != nil || !slices.Contains(lookalikes, key) || text != escape.Distinct(key) {
			t.Errorf("%q is shown as %s, %v", key, text, err)
		}
	}
	for _, key := range []string{"\xff", "a\nb", "alice ", ""} {
		_, page := s.do(t, "POST", "/limits/look", formOf("exact", strconv.QuoteToASCII(key), "rule", "logins"), nil)
		contains(t, html.UnescapeString(page), "<h3><code>"+escape.Distinct(key)+"</code> by", "4 of 5 are left")
	}
	if len(shown) != len(lookalikes) {
		t.Errorf("%d texts for %d keys: %v", len(shown), len(lookalikes), shown)
	}
	if !shown["alice"] || !shown[`"alice "`] || !shown[`日本 "\u65e5\u672c"`] {
		t.Errorf("%v", shown)
	}
}

// A change is made of the very key that was looked up, also if no field of a form can hold it.
func TestChangeOfAKeyThatNobodyCanType(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{Authorise: func(*http.Request) (string, bool) { return "me", true }})
	const key = "a\x00b\xff\r\n"
	h.Limiter.AllowN(key, five, 5)
	_, body := s.do(t, "POST", "/limits/look", formOf("exact", `"a\x00b\xff\r\n"`), nil)
	contains(t, html.UnescapeString(body), `<input name="exact" required autocomplete="off" spellcheck="false" maxlength="16384" value=""a\x00b\xff\r\n"">`)
	if res, body := s.do(t, "POST", "/limits/act", formOf("do", "reset", "rule", "logins", "exact", `"a\x00b\xff\r\n"`), nil); res.StatusCode != 200 {
		t.Errorf("%s: %s", res.Status, body)
	}
	if left := h.Limiter.Peek(key, five).Remaining; left != 5 {
		t.Errorf("%d left", left)
	}
	for _, exact := range []string{"alice", `"alice`, "'ab'"} {
		if res, _ := s.do(t, "POST", "/limits/look", formOf("exact", exact), nil); res.StatusCode != 400 {
			t.Errorf("%s: %s", exact, res.Status)
		}
	}
}

// A key is looked up and changed as it counts, in whatever form it is written; what is no key of a rule is
// refused.
func TestKeysThatCountOtherwise(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{Rules: new(file), Authorise: func(*http.Request) (string, bool) { return "me", true }})
	h.Limiter.AllowN("203.0.113.9", five, 5)
	w := s.look(t, "key", "203.0.113.9:443", "rule", "logins")
	if len(w.Found) != 1 || w.Found[0].Allowed || w.Found[0].Key != "203.0.113.9" {
		t.Errorf("%+v", w)
	}
	if res, body := s.do(t, "POST", "/limits/act", formOf("do", "reset", "rule", "logins", "key", "203.0.113.9:443"), nil); res.StatusCode != 200 {
		t.Errorf("%s: %s", res.Status, body)
	}
	if left := h.Limiter.Peek("203.0.113.9", five).Remaining; left != 5 {
		t.Errorf("%d left after a reset", left)
	}
	for _, path := range []string{"/limits/look", "/limits/act"} {
		if res, body := s.do(t, "POST", path, formOf("do", "reset", "rule", "logins", "key", "nobody"), nil); res.StatusCode < 400 || !strings.Contains(body, "nobody is no address") {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if w := s.look(t, "key", "nobody"); len(w.Found) != 0 {
		t.Errorf("%+v", w)
	}
}
