package grpclimit_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// No error of this package shows more of a key than some bytes, nor anything that cannot be printed.
func TestErrorsOfHostileKeys(t *testing.T) {
	const most = 400 // bytes of an error
	lim, err := local.New(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	rule := limit.Must(limit.TokenBucket("upstream", limit.Tokens{Burst: 1, Refill: 1, Per: time.Hour}))
	s, _ := counting(echo())
	cc := dial(t, serve(t, nil, s), clients(t, lim, rule, grpclimit.Fixed(limittest.HostileKey()), grpclimit.Wait())...)
	want(t, say(t, cc, ""), codes.OK)
	err = say(t, cc, "") // the deadline comes before the unit
	want(t, err, codes.ResourceExhausted)
	limittest.CheckError(t, "a call that is not sent", err, most)

	at := named{limittest.HostileKey(), "192.0.2.1:80"}
	_, err = grpclimit.ByPeer()(peer.NewContext(t.Context(), &peer.Peer{Addr: at}), grpclimit.Call{})
	limittest.CheckError(t, "a peer on a strange network", err, most)
}
