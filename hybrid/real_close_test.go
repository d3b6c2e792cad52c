package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Redis stops for 0.4 s in the moment in which a process ends that has 2 s to do so:
// that is more than the limiter needs to take it for away. All is reported.
//
// Fault 83: everything is reported within the context.
func TestRealCloseWhileRedisStops(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("noticed before %v", known), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			l := realNode(t, srv.Addr(), hybrid.Options{})
			if err := srv.Freeze(); err != nil {
				t.Fatal(err)
			}
			stop := 400 * time.Millisecond
			wantAdmitted(t, l, "k", hundred, 40, 40)
			if known {
				eventually(t, 5*time.Second, "degraded", allModes([]*hybrid.Limiter{l}, hybrid.Degraded))
			}
			thawed := make(chan error, 1)
			time.AfterFunc(stop, func() { thawed <- srv.Thaw() })
			ctx, cancel := context.WithTimeout(bg, 2*time.Second)
			defer cancel()
			if err := l.Close(ctx); err != nil {
				t.Error(err)
			}
			if err := <-thawed; err != nil {
				t.Fatal(err)
			}
			conserved(t, l, true)
			admin := dial(t, srv.Addr())
			if got := totalIn(t, admin, counterKey(hundred, "k")); got != 40 {
				t.Errorf("Redis counts %d of 40", got)
			}
			if live := admin.ZCard(bg, "hl:1:{0}:nodes:1").Val(); live != 0 {
				t.Errorf("%d live nodes", live)
			}
		})
	}
}

// A Redis that stays away is waited for as long as ctx says, no longer; with nothing
// to report it is not waited for at all.
//
// Fault 83: Close keeps to its context.
func TestRealCloseWhileRedisStaysAway(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	idle, busy := realNode(t, srv.Addr(), hybrid.Options{}), realNode(t, srv.Addr(), hybrid.Options{})
	srv.Kill()
	nodes := []*hybrid.Limiter{idle, busy}
	eventually(t, 5*time.Second, "degraded", allModes(nodes, hybrid.Degraded))
	wantAdmitted(t, busy, "k", hundred, 5, 5)
	for _, l := range nodes {
		const patience = 1500 * time.Millisecond
		ctx, cancel := context.WithTimeout(bg, patience)
		begun := time.Now()
		err := l.Close(ctx)
		took := time.Since(begun)
		cancel()
		var away *hybrid.UnavailableError
		if !errors.As(err, &away) || l == busy != strings.Contains(err.Error(), "5 admitted units") {
			t.Errorf("%v: want an UnavailableError, and what is lost", err)
		}
		if l == busy && took < patience || took > patience+time.Second {
			t.Errorf("it took %v", took)
		}
		if l == idle && took > patience/2 {
			t.Errorf("with nothing to report it took %v", took)
		}
	}
}
