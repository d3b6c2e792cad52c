package remote_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/remote"
)

// The constants are written out, so that godoc shows what they are.
func TestConstantsAreThoseOfTheStore(t *testing.T) {
	for name, c := range map[string]struct{ got, want any }{
		"ClassUnavailable":   {remote.ClassUnavailable, remote.Class(redisstore.ClassUnavailable)},
		"ClassMisconfigured": {remote.ClassMisconfigured, remote.Class(redisstore.ClassMisconfigured)},
		"ClassKey":           {remote.ClassKey, remote.Class(redisstore.ClassKey)},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, the store's %v", name, c.got, c.want)
		}
	}
}

// What is wrong with options is said in package redisstore.
func TestErrors(t *testing.T) {
	if l, err := remote.New(nil, remote.Options{}); l != nil || err == nil {
		t.Fatal(l, err)
	}
	for _, zero := range []redis.UniversalClient{&redis.Client{}, &redis.ClusterClient{}, &redis.Ring{}} {
		if l, err := remote.New(zero, remote.Options{}); l != nil || err == nil || !strings.Contains(err.Error(), "zero") {
			t.Errorf("%T: %v", zero, err)
		}
	}
	if class := remote.ClassKey; class.String() != "key" {
		t.Errorf("%v", class)
	}
}
