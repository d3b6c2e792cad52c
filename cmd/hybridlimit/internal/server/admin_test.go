package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// form posts a form to the page, as somebody if there is a password.
func (n *node) form(path, password, form string) (int, string) {
	n.Helper()
	r, err := http.NewRequest("POST", "http://"+n.server.o.HTTP.Addr().String()+path, strings.NewReader(form))
	if err != nil {
		n.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if password != "" {
		r.SetBasicAuth("ann", password)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		n.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		n.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Whoever can reach the port sees the state and the rules, and no keys, and can change nothing, until
// flags say so.
func TestPageShowsNoKeysByDefault(t *testing.T) {
	n := begin(t, redistest.Start(t).Addr(), nil).synced()
	n.take("alice")
	code, body := n.get("/admin/")
	if code != 200 || !strings.Contains(body, "synced") || !strings.Contains(body, "rules.yaml") || strings.Contains(body, "requests_per_unit: 10") || strings.Contains(body, "alice") {
		t.Errorf("%d\n%s", code, body)
	}
	for _, path := range []string{"/admin/look", "/admin/keys.json", "/admin/act"} {
		if code, body := n.form(path, "", "key=alice&do=reset&rule=api"); code != 403 || strings.Contains(body, "9 of 10") {
			t.Errorf("%s: %d\n%s", path, code, body)
		}
	}
}

// Whoever opens the port in a browser is told what is there, and other paths are still not there.
func TestFrontOfOperators(t *testing.T) {
	n := begin(t, redistest.Start(t).Addr(), nil)
	code, body := n.get("/")
	if code != 200 {
		t.Errorf("%d\n%s", code, body)
	}
	listed := 0
	for line := range strings.Lines(body) {
		if path := strings.Fields(line)[0]; path[0] == '/' {
			listed++
			if code, _ := n.get(path); code != 200 {
				t.Errorf("%s: %d", path, code)
			}
		}
	}
	if listed != 4 {
		t.Errorf("%d are listed\n%s", listed, body)
	}
	for _, path := range []string{"/nothing", "/metrics/", "//x"} {
		if code, _ := n.get(path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// With the flags a key is explained by the rules file, changes need the password, and a bad file is
// shown with its mistake.
func TestPageOfServe(t *testing.T) {
	n := begin(t, redistest.Start(t).Addr(), func(o *Options) { o.Admin = Admin{Keys: true, Password: "secret"} }).synced()
	for range 11 {
		n.take("alice")
	}
	code, body := n.form("/admin/keys.json", "", "key=alice")
	if code != 200 || !strings.Contains(body, `"says": "rule api"`) || !strings.Contains(body, "used up") {
		t.Errorf("%d\n%s", code, body)
	}
	const reset = "key=alice&do=reset&rule=api"
	if code, _ := n.form("/admin/act.json", "wrong", reset); code != 403 {
		t.Errorf("with another password: %d", code)
	}
	if code, body := n.form("/admin/act.json", "secret", reset); code != 200 {
		t.Errorf("%d\n%s", code, body)
	}
	write(t, n.path, limits+"foo: 1\n")
	if code, body := n.form("/admin/act", "secret", "do=reload"); code != 422 || !strings.Contains(body, "<mark>") || !strings.Contains(body, "stay in force") {
		t.Errorf("%d\n%s", code, body)
	}
}
