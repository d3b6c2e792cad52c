package rls

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// patience bounds what must happen at once, on any machine.
const patience = time.Minute

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a service, a client of it, and its clock.
type world struct {
	testing.TB
	service *Service
	lim     *hybrid.Limiter
	now     *clock.Manual
	client  ratelimit.RateLimitServiceClient
}

// serve serves rules until the end of the test.
func serve(t testing.TB, text string, o Options) *world {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, now: clock.NewManual(start)}
	if w.lim, err = hybrid.New(nil, hybrid.Options{Clock: w.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.lim.Close() })
	o.Limiter, o.Rules = w.lim, func() *rules.Set { return set }
	if w.service, err = New(o); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(server, w.service)
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cc.Close()
		server.Stop()
		// A test that needs no call may stop the server before Serve has run.
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	w.client = ratelimit.NewRateLimitServiceClient(cc)
	return w
}

// d returns a descriptor from a text such as "message_type=marketing to_number=206".
func d(text string) *common.RateLimitDescriptor {
	desc := &common.RateLimitDescriptor{}
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		desc.Entries = append(desc.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return desc
}

// request returns a request of one hit for descriptors.
func request(domain string, list ...*common.RateLimitDescriptor) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: domain, Descriptors: list}
}

// ask sends a request.
func (w *world) ask(req *ratelimit.RateLimitRequest) *ratelimit.RateLimitResponse {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	res, err := w.client.ShouldRateLimit(ctx, req)
	if err != nil {
		w.Fatal(err)
	}
	return res
}

// line returns a response as one line: the code, then code, limit, what remains and the
// seconds until reset of each descriptor.
func line(res *ratelimit.RateLimitResponse) string {
	var text strings.Builder
	text.WriteString(res.GetOverallCode().String())
	for _, st := range res.GetStatuses() {
		text.WriteString(" | " + st.GetCode().String())
		if l := st.GetCurrentLimit(); l != nil {
			text.WriteString(fmt.Sprintf(" %d/%s", l.GetRequestsPerUnit(), l.GetUnit()))
		}
		text.WriteString(fmt.Sprintf(" %d", st.GetLimitRemaining()))
		if r := st.GetDurationUntilReset(); r != nil {
			text.WriteString(fmt.Sprintf(" %gs", r.AsDuration().Seconds()))
		}
	}
	return text.String()
}

// want sends a request and checks the response.
func (w *world) want(req *ratelimit.RateLimitRequest, want string) {
	w.Helper()
	if got := line(w.ask(req)); got != want {
		w.Errorf("%v:\n%s, want\n%s", req, got, want)
	}
}

// admits sends a request until it is refused, and returns how many were admitted.
func (w *world) admits(domain string, list ...string) (n int) {
	w.Helper()
	req := request(domain)
	for _, text := range list {
		req.Descriptors = append(req.Descriptors, d(text))
	}
	for ; w.ask(req).GetOverallCode() == ratelimit.RateLimitResponse_OK; n++ {
		if n > 1000 {
			w.Fatal("nothing limits it")
		}
	}
	return n
}
