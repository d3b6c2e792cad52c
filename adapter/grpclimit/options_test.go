package grpclimit_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// construct makes all four interceptors, and returns the errors of the servers and of the
// clients. There is an interceptor or an error, never both and never neither.
func construct(t *testing.T, lim limit.ContextLimiter, rule *limit.Rule, key grpclimit.KeyFunc, opts ...grpclimit.Option) (server, client error) {
	t.Helper()
	us, err1 := grpclimit.UnaryServerInterceptor(lim, rule, key, opts...)
	ss, err2 := grpclimit.StreamServerInterceptor(lim, rule, key, opts...)
	uc, err3 := grpclimit.UnaryClientInterceptor(lim, rule, key, opts...)
	sc, err4 := grpclimit.StreamClientInterceptor(lim, rule, key, opts...)
	if (us == nil) != (err1 != nil) || (ss == nil) != (err2 != nil) || (uc == nil) != (err3 != nil) || (sc == nil) != (err4 != nil) {
		t.Fatalf("interceptors and errors: %v, %v, %v, %v", err1, err2, err3, err4)
	}
	if (err1 == nil) != (err2 == nil) || (err3 == nil) != (err4 == nil) {
		t.Fatalf("unary %v, %v; streams %v, %v", err1, err3, err2, err4)
	}
	return err1, err3
}

func TestConstructorsRefuse(t *testing.T) {
	alone, _ := alone(t)
	lim := limit.WithContext(alone)
	hybrids, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer hybrids.Close()
	shared := limit.WithContext(hybrids)
	rule, key := bucket("api", 1), grpclimit.ByMethod()
	window := limit.Must(limit.SlidingWindow("window", 10, time.Minute))
	exact := limit.Must(limit.SlidingLog("exact", 10, time.Minute))
	type opts = []grpclimit.Option
	for _, c := range []struct {
		name string
		lim  limit.ContextLimiter
		rule *limit.Rule
		key  grpclimit.KeyFunc
		opts opts
		both bool // else only clients refuse, as servers do with another error
		text string
	}{
		{"no limiter", nil, rule, key, nil, true, "limiter is nil"},
		{"a nil limiter", limit.WithContext((*local.Limiter)(nil)), rule, key, nil, true, "limiter is nil"},
		{"no rule", lim, nil, key, nil, true, "rule is nil"},
		{"no key", lim, rule, nil, nil, true, "key function is nil"},
		{"no part of a key", lim, rule, grpclimit.Join(key, nil), nil, true, "key function is nil"},
		{"a rule that the limiter cannot decide", shared, exact, key, nil, true, "sliding log"},
		{"a nil option", lim, rule, key, opts{nil}, true, "option 0 is nil"},
		{"no plan", lim, rule, key, opts{grpclimit.Plan(nil)}, true, "Plan"},
		{"no observer", lim, rule, key, opts{grpclimit.Observe(nil)}, true, "Observe"},
		{"and no rule", lim, rule, key, opts{grpclimit.And(nil, key)}, true, "limit 1: the rule is nil"},
		{"and the same name", lim, rule, key, opts{grpclimit.And(bucket("api", 5), key)}, true, `has its name, "api"`},
		{"a code that lets pass", lim, rule, key, opts{grpclimit.KeyErrorCode(codes.OK)}, true, "KeyErrorCode"},
		{"refunds on nothing", lim, rule, key, opts{grpclimit.RefundOn()}, true, "no codes"},
		{"refunds on what is none", lim, rule, key, opts{grpclimit.RefundOn(99)}, true, "no code of gRPC"},
		{"no settlement", lim, rule, key, opts{grpclimit.Settle(nil)}, true, "Settle: the function is nil"},
		{"messages without a rule", lim, rule, key, opts{grpclimit.EachMessage(nil, nil)}, true, "EachMessage"},
		{"waiting for several", lim, rule, key, opts{grpclimit.Wait(), grpclimit.And(window, key)}, false, "all or none"},
		{"following in a window", lim, window, key, opts{grpclimit.FollowRetryInfo(time.Second)}, false, "sliding-window"},
		{"following for no time", lim, rule, key, opts{grpclimit.FollowRetryInfo(0)}, false, "FollowRetryInfo is 0s"},
		{"following for ever", lim, rule, key, opts{grpclimit.FollowRetryInfo(limit.Never)}, false, "at most 1h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, client := construct(t, c.lim, c.rule, c.key, c.opts...)
			if client == nil || !strings.Contains(client.Error(), c.text) {
				t.Errorf("client: %v", client)
			}
			if server == nil || c.both && !strings.Contains(server.Error(), c.text) {
				t.Errorf("server: %v", server)
			}
		})
	}
}

func TestConstructorsRefuseOptionsOfTheOtherSide(t *testing.T) {
	alone, _ := alone(t)
	lim := limit.WithContext(alone)
	rule, key := bucket("api", 1), grpclimit.ByMethod()
	if server, client := construct(t, lim, rule, key, grpclimit.EachMessage(bucket("messages", 1), nil)); server != nil || client == nil {
		t.Errorf("EachMessage: %v, %v", server, client)
	}
	for _, o := range []grpclimit.Option{grpclimit.Wait(), grpclimit.FollowRetryInfo(time.Hour)} {
		if server, client := construct(t, lim, rule, key, o); server == nil || client != nil {
			t.Errorf("%v, %v", server, client)
		}
	}
}

func TestConstructorsReportEveryProblem(t *testing.T) {
	server, _ := construct(t, nil, nil, nil, grpclimit.Plan(nil), grpclimit.Wait(), nil)
	for _, text := range []string{"limiter is nil", "rule is nil", "key function is nil", "Plan", "Wait is not for servers", "option 2"} {
		if server == nil || !strings.Contains(server.Error(), text) {
			t.Errorf("%v does not say %q", server, text)
		}
	}
}
