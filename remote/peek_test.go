package remote

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// TestPeekTellsWhatTakeOfOneWould compares Peek with the Take that follows,
// on an unused key, a used one and an exhausted one.
func TestPeekTellsWhatTakeOfOneWould(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		ctx := context.Background()
		for _, rule := range []*limit.Rule{
			limit.Must(limit.Funnel("funnel", 3, 3, time.Hour)),
			limit.Must(limit.SlidingWindow("sliding", 3, time.Hour)),
			limit.Must(limit.FixedWindow("fixed", 3, 100*time.Hour)),
			daily(t, 3),
			limit.Must(limit.SlidingLog("log", 3, time.Hour)),
			limit.Must(limit.SlidingLog("nothing", 0, time.Hour)),
		} {
			for i := range int64(5) {
				before, err := l.Peek(ctx, "k", rule)
				if err != nil {
					t.Fatal(err)
				}
				again, _ := l.Peek(ctx, "k", rule)
				if again.Remaining != before.Remaining {
					t.Fatalf("%v: a peek took something: %+v, then %+v", rule, before, again)
				}
				took, err := l.Take(ctx, "k", rule, 1)
				if err != nil {
					t.Fatal(err)
				}
				if before.Allowed != took.Allowed || took.Allowed != (i < rule.Limit()) {
					t.Fatalf("%v, call %d: peek %+v, take %+v", rule, i, before, took)
				}
				if want := max(rule.Limit()-i, 0); before.Remaining != want {
					t.Fatalf("%v, call %d: peek %+v, want %d remaining", rule, i, before, want)
				}
				if (before.RetryAfter == limit.Never) != (rule.Limit() == 0) || before.Allowed == (before.RetryAfter > 0) {
					t.Fatalf("%v, call %d: peek %+v", rule, i, before)
				}
			}
		}
	})
}
