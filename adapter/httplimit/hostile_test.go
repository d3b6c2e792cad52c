package httplimit

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// No error shows more of what a client has sent than some bytes, nor anything that cannot be printed.
func TestErrorsOfHostileClients(t *testing.T) {
	const most = 300 // bytes of an error
	key := limittest.HostileKey()
	lim, err := local.New(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	lim.Take(key, tenPerSecond, 10)
	refused := &RefusedError{key, tenPerSecond, lim.Take(key, tenPerSecond, 1)}
	limittest.CheckError(t, "a request that is not sent", refused, most)
	if refused.Key != key {
		t.Error("the field is cut")
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = key
	byAddress, err := ByAddress(AddressOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = byAddress(r); !errors.Is(err, ErrNoKey) {
		t.Errorf("%.100v", err)
	}
	limittest.CheckError(t, "a peer that has no address", err, most)
}
