package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 registers.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is a problem document of RFC 9457.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// answerRefused is the default of Options.Refused. While the limiter is degraded the status is
// 429 as well, and not the draft's 503: balancers and monitors take 503 for a server that
// fails.
func answerRefused(w http.ResponseWriter, _ *http.Request, d Decision) {
	p := problem{
		Type: quotaExceeded, Title: "More requests than the quota allows",
		Status: http.StatusTooManyRequests, Violated: []string{d.Policy},
	}
	if d.Source == limit.SourceDegraded {
		p.Type, p.Title = reducedCapacity, "More requests than the capacity allows at the moment"
	}
	p.write(w)
}

// answerError is the default of Options.OnError. What is wrong is not said, because it may be
// in the service, except that there is no key: the client can mend that. An error of the limiter
// is no 429: the client has not sent too much.
func answerError(w http.ResponseWriter, _ *http.Request, _ http.Handler, err error) {
	p := problem{Status: http.StatusBadRequest}
	switch {
	case isFault(err):
		p.Status = http.StatusInternalServerError
	case isNoAnswer(err):
		p.Status = http.StatusServiceUnavailable
	case errors.Is(err, ErrNoKey):
		p.Detail = "The request does not say whom to count it for"
	}
	p.Title = http.StatusText(p.Status)
	p.write(w)
}

func (p problem) write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // strings and numbers alone
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone is no error of ours
}
