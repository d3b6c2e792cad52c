package check

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// openAPI describes what is served. A test compares it with the handler.
//
//go:embed openapi.json
var openAPI []byte

// Service is what decides; *rls.Service has it.
type Service interface {
	// Decide decides a request. If it is refused, retry is after which time it would be
	// admitted; 0 if that is not known, or never.
	Decide(ctx context.Context, req *ratelimit.RateLimitRequest) (res *ratelimit.RateLimitResponse, retry time.Duration, err error)
	// Ask takes n units of a key under a named rule. It has the errors of rls.Service.
	Ask(ctx context.Context, rule, key string, n int64) (limit.Result, error)
	// Charge counts n units, whether they fit or not, or gives them back if n is negative.
	Charge(rule, key string, n int64) (limit.Result, error)
}

// maxDetail bounds what a problem repeats of a request.
const maxDetail = 256

// Handler answers the paths of this package. The body of a request may have maxBody bytes.
func Handler(service Service, maxBody int64) http.Handler {
	mux := http.NewServeMux()
	only := func(path, method string, answer http.HandlerFunc) {
		mux.HandleFunc(method+" "+path, answer)
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", method)
			problem(w, http.StatusMethodNotAllowed, "")
		})
	}
	only("/check", http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		check(w, r, service)
	})
	only("/openapi.json", http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", openAPI)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusNotFound, "There are POST /check and GET /openapi.json")
	})
	// A page that somebody looks at on this machine could use up limits: browsers let it post to any
	// address, and a page can make its own host name lead here. All say where a request to change
	// something comes from; programs do not.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") {
			problem(w, http.StatusForbidden, "A page in a browser must not ask")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func check(w http.ResponseWriter, r *http.Request, service Service) {
	if kind := r.Header.Get("Content-Type"); kind != "" && !isJSON(kind) {
		problem(w, http.StatusUnsupportedMediaType, "The body must be application/json")
		return
	}
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		problem(w, http.StatusRequestEntityTooLarge, "At most "+strconv.FormatInt(large.Limit, 10)+" bytes are allowed")
		return
	case err != nil:
		problem(w, http.StatusBadRequest, "The body could not be read")
		return
	}
	req := new(ratelimit.RateLimitRequest)
	if err := protojson.Unmarshal(body, req); err != nil {
		checkOther(w, r, service, body, err)
		return
	}
	decide(w, r, service, req)
}

// checkOther answers a request that is not one of Envoy, because of err.
func checkOther(w http.ResponseWriter, r *http.Request, service Service, body []byte, err error) {
	object, hint := new(structpb.Struct), ""
	switch broken := protojson.Unmarshal(body, object); {
	case broken != nil: // no JSON object at all
		err = broken
	case object.GetFields()["rule"] != nil:
		checkNamed(w, r, service, object.GetFields())
		return
	case strings.Contains(err.Error(), "unknown field"):
		hint = allFields
	}
	// The library has one of two kinds of spaces, so that nobody relies on its texts.
	problem(w, http.StatusBadRequest, strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "), hint)
}

// decide answers a request of Envoy.
func decide(w http.ResponseWriter, r *http.Request, service Service, req *ratelimit.RateLimitRequest) {
	res, retry, err := service.Decide(r.Context(), req)
	if answerUndecided(w, err) {
		return
	}
	if status.Code(err) == codes.InvalidArgument {
		problem(w, http.StatusBadRequest, strings.TrimPrefix(status.Convert(err).Message(), "rls: "))
		return
	}
	text, failed := protojson.Marshal(res)
	if err != nil || failed != nil {
		problem(w, http.StatusInternalServerError, "")
		return
	}
	var compact bytes.Buffer // without the spaces that the library adds at random
	_ = json.Compact(&compact, text)
	code := http.StatusOK
	if res.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
		code = http.StatusTooManyRequests
		if retry > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((retry+time.Second-1)/time.Second), 10))
		}
	}
	answer(w, code, "application/json", append(compact.Bytes(), '\n'))
}

// answerUndecided answers if err says that Redis was to decide, because a limit is exact, and has not;
// or that it cannot, because on a Cluster the keys are in several shards.
func answerUndecided(w http.ResponseWriter, err error) bool {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		problem(w, http.StatusServiceUnavailable, strings.TrimPrefix(status.Convert(err).Message(), "rls: "))
	case codes.Unimplemented:
		problem(w, http.StatusInternalServerError, strings.TrimPrefix(status.Convert(err).Message(), "rls: "))
	default:
		return false
	}
	return true
}

// isJSON reports whether a content type is JSON, of whatever.
func isJSON(kind string) bool {
	media, _, err := mime.ParseMediaType(kind)
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// problem answers with a problem document of RFC 9457, as adapter/httplimit does. What a detail
// repeats of a request is bounded; hints follow it as they are.
func problem(w http.ResponseWriter, code int, detail string, hints ...string) {
	body, _ := json.Marshal(struct { // strings and numbers alone
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{http.StatusText(code), code, escape.Plain(detail, maxDetail) + strings.Join(hints, "")})
	answer(w, code, "application/problem+json", append(body, '\n'))
}

func answer(w http.ResponseWriter, code int, kind string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that has gone is no error of ours
}
