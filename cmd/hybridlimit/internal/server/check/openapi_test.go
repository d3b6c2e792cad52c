package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/rls"
	"github.com/hybridlimit/hybridlimit/limit"
)

// document is the parts of openapi.json that tests look at.
type document struct {
	OpenAPI string                          `json:"openapi"`
	Paths   map[string]map[string]operation `json:"paths"`
}

type operation struct {
	RequestBody struct {
		Content map[string]content `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Headers map[string]any     `json:"headers"`
		Content map[string]content `json:"content"`
	} `json:"responses"`
}

type content struct {
	Schema struct {
		Ref string `json:"$ref"`
	} `json:"schema"`
	Examples map[string]struct {
		Value json.RawMessage `json:"value"`
	} `json:"examples"`
}

// examples returns the only content and its examples in order.
func examples(t *testing.T, all map[string]content) (kind string, c content, names []string) {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%d kinds of content, want 1", len(all))
	}
	for kind, c = range all {
	}
	return kind, c, slices.Sorted(maps.Keys(c.Examples))
}

func readDocument(t *testing.T) (d document) {
	t.Helper()
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// fits checks a value by a schema of the document.
func fits(t *testing.T, ref string, value []byte) error {
	t.Helper()
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", all); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("openapi.json" + ref)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(v)
}

// others is what leads to the examples of statuses without a request that fits the schema.
var others = map[string]func() *http.Request{
	"unknownField":      func() *http.Request { return post(`{"domain": "messaging", "colour": "red"}`) },
	"namedUnknownField": func() *http.Request { return post(`{"rule": "api", "key": "alice", "count": 2}`) },
	"noDescriptor":      func() *http.Request { return post(`{"domain": "messaging"}`) },
	"large":             func() *http.Request { return post(`{"domain": "` + strings.Repeat("m", 256<<10) + `"}`) },
	"form": func() *http.Request {
		r := post("domain=messaging")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	},
	"page": func() *http.Request {
		r := post(`{"domain": "messaging", "descriptors": [{}]}`)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		return r
	},
	"undecided": func() *http.Request { return post(`{"rule": "login", "key": "alice"}`) }, // while Redis is away
	"broken":    func() *http.Request { return post(`{"domain": "messaging"}`) },           // to a service that is
}

// first is what is asked before the example of that name.
var first = map[string]string{"refused": "refused", "handedBack": "admitted", "namedRefused": "namedRefused"}

// Each example of a request leads to the answer that stands under its name, and all of them fit
// their schemas. Each status that the document has is one that the handler answers.
func TestOpenAPI(t *testing.T) {
	d := readDocument(t)
	if d.OpenAPI != "3.1.0" || len(d.Paths) != 2 || len(d.Paths["/check"]) != 1 {
		t.Fatalf("%+v", d)
	}
	op := d.Paths["/check"]["post"]
	kind, asked, names := examples(t, op.RequestBody.Content)
	if kind != "application/json" || len(names) < 5 {
		t.Fatalf("%s: %q", kind, names)
	}
	for _, name := range names {
		if err := fits(t, asked.Schema.Ref, asked.Examples[name].Value); err != nil {
			t.Errorf("request %s: %v", name, err)
		}
	}
	seen := map[string]bool{}
	for _, code := range slices.Sorted(maps.Keys(op.Responses)) {
		kind, answers, answered := examples(t, op.Responses[code].Content)
		if len(answered) == 0 {
			t.Errorf("%s has no example", code)
		}
		for _, name := range answered {
			request := others[name]
			if example, ok := asked.Examples[name]; ok {
				request = func() *http.Request { return post(string(example.Value)) }
			}
			if request == nil {
				t.Errorf("nothing leads to %s of %s", name, code)
				continue
			}
			seen[name] = true
			h := serve(t)
			switch name {
			case "broken":
				h = Handler(broken{}, 1<<20)
			case "undecided":
				h = serveExact(t, &silent{}, rls.Options{})
			}
			if before := first[name]; before != "" {
				ask(h, post(string(asked.Examples[before].Value)))
			}
			w := ask(h, request())
			if err := fits(t, answers.Schema.Ref, w.Body.Bytes()); err != nil {
				t.Errorf("the answer to %s: %v", name, err)
			}
			if err := fits(t, answers.Schema.Ref, answers.Examples[name].Value); err != nil {
				t.Errorf("the example %s: %v", name, err)
			}
			if strconv.Itoa(w.Code) != code || w.Header().Get("Content-Type") != kind || !same(t, w.Body.Bytes(), answers.Examples[name].Value) {
				t.Errorf("%s: %d %s\n%s, want %s %s\n%s", name, w.Code, w.Header().Get("Content-Type"), w.Body, code, kind, answers.Examples[name].Value)
			}
			_, promised := op.Responses[code].Headers["Retry-After"]
			if seconds, err := strconv.Atoi(w.Header().Get("Retry-After")); promised && name != "namedNever" != (err == nil && seconds >= 1) {
				t.Errorf("%s: Retry-After is %q", name, w.Header().Get("Retry-After"))
			}
		}
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("the request %s has no answer", name)
		}
	}
}

// The schemas refuse what the handler refuses.
func TestSchemaOfRequests(t *testing.T) {
	_, asked, _ := examples(t, readDocument(t).Paths["/check"]["post"].RequestBody.Content)
	for _, body := range []string{
		`{}`, `{"domain": "d"}`, `{"domain": "", "descriptors": [{}]}`, `{"domain": "d", "descriptors": []}`, `{"domain": "d", "descriptors": [{}], "colour": 1}`,
		`{"domain": "d", "descriptors": [{"entries": [{"name": "k"}]}]}`, `{"domain": "d", "descriptors": [{}], "hitsAddend": -1}`,
		`{"rule": "api"}`, `{"rule": 1, "key": "k"}`, `{"rule": null, "key": "k"}`, `{"rule": "api", "key": 1}`, `{"rule": "api", "key": null}`,
		`{"rule": "api", "key": "k", "n": -1}`, `{"rule": "api", "key": "k", "n": 1.5}`, `{"rule": "api", "key": "k", "n": 1e300}`,
		`{"rule": "api", "key": "k", "n": "1"}`, `{"rule": "api", "key": "k", "n": null}`, `{"rule": "api", "key": "k", "N": 1}`,
		`{"rule": "api", "key": "k", "domain": "d"}`, `{"Rule": "api", "key": "k"}`, `{"key": "k"}`,
		`{"domain": "d", "descriptors": [{"hitsAddend": "many"}]}`, `{"domain": "messaging", "descriptors": [{"entries": [{"key": "to_number"}], "limit": {"unit": "WEEK"}}]}`,
		`{"domain": "messaging", "descriptors": [{"entries": [{"key": "to_number"}], "limit": {"unit": "DAY", "unitMultiplier": 0}}]}`,
	} {
		if err := fits(t, asked.Schema.Ref, []byte(body)); err == nil {
			t.Errorf("%s fits the schema", body)
		}
		if w := ask(serve(t), post(body)); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	w := ask(serve(t), httptest.NewRequest(http.MethodGet, "/openapi.json", http.NoBody))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || !bytes.Equal(w.Body.Bytes(), openAPI) {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

// broken is a service that fails.
type broken struct{}

func (broken) Charge(string, string, int64) (limit.Result, error) { panic("not asked") }

func (broken) Ask(context.Context, string, string, int64) (limit.Result, error) {
	return limit.Result{}, errors.New("a secret of the server")
}

func (broken) Decide(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, time.Duration, error) {
	return nil, 0, errors.New("a secret of the server")
}

// post returns a request without a content type.
func post(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/check", strings.NewReader(body))
}

func ask(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// same reports whether two texts are the same JSON.
func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	var values [2]any
	for i, text := range [][]byte{a, b} {
		if err := json.Unmarshal(text, &values[i]); err != nil && err != io.EOF {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// A page in a browser uses no limits up: neither one of another site nor one that has made its own host
// name lead here, whose requests look like those of this server to itself.
func TestBrowsersDoNotAsk(t *testing.T) {
	asked := 0
	h := Handler(counting(func() { asked++ }), 1<<10)
	for name, value := range map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "http://evil.example/check", strings.NewReader(`{}`))
		r.Header.Set(name, value)
		if h.ServeHTTP(w, r); w.Code != http.StatusForbidden || asked != 0 {
			t.Errorf("%s: %s: %d, asked %d times", name, value, w.Code, asked)
		}
	}
	if h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/check", strings.NewReader(`{}`))); asked != 1 {
		t.Errorf("a program: asked %d times", asked)
	}
}

// counting is a service that counts what it is asked.
type counting func()

func (c counting) Charge(string, string, int64) (limit.Result, error) { panic("not asked") }

func (c counting) Ask(context.Context, string, string, int64) (limit.Result, error) {
	c()
	return limit.Result{Allowed: true}, nil
}

func (c counting) Decide(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, time.Duration, error) {
	c()
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, 0, nil
}
