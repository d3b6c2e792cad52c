package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/limit"
)

// KeyFunc returns the key that a request is counted under. It must be safe for concurrent
// use. A request for which it returns an error, or the empty key, is not limited together
// with others: it goes to OnError of [Options], which refuses it by default. A key may be of
// any length; limiters keep one above 256 bytes as its hash.
type KeyFunc func(r *http.Request) (string, error)

// ErrNoKey reports a request that has no key: the empty one, or a header that is missing.
var ErrNoKey = errors.New("httplimit: request has no key")

// By makes a KeyFunc of a function without an error, such as one that takes the user from
// the request's context. If that returns "", the request has no key.
func By(f func(r *http.Request) string) KeyFunc {
	if f == nil {
		return nil
	}
	return func(r *http.Request) (string, error) {
		if key := f(r); key != "" {
			return key, nil
		}
		return "", ErrNoKey
	}
}

// ByHeader takes the value of a header field as the key, such as an API key. Several lines
// of the field are one value, joined by ", " in their order, as HTTP has it. "Host" is the
// host that was asked for. A request whose value is empty has no key.
//
// Whoever can invent values has as many keys as they like: check the value first, or limit
// by the client's address as well. ByHeader returns nil, which [New] rejects, if the name is
// not one of a header field.
func ByHeader(name string) KeyFunc {
	if !isToken(name) {
		return nil
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) (string, error) {
		value := ""
		switch lines := r.Header[name]; {
		case name == "Host":
			value = r.Host
		case len(lines) == 1:
			value = lines[0]
		default:
			value = strings.Join(lines, ", ")
		}
		if strings.Trim(value, ", \t") == "" {
			return "", fmt.Errorf("%w: no %s", ErrNoKey, name)
		}
		return value, nil
	}
}

// ByRoute takes the pattern of the route as the key, such as "GET /items/{id}". It is known
// behind the router only: wrap the handlers, not the mux. It is as much of it as the router
// has written into the request's Pattern by then: with chi's With or Group the whole pattern,
// with Use of a sub-router "/users/*", for all of its routes. Without a pattern the request
// is not decided, which is answered with 500.
func ByRoute(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", &fault{errors.New("httplimit: request has no route yet: wrap the handlers, not the router")}
	}
	return r.Pattern, nil
}

// Join makes one key of several, such as user and route. Other parts make another key,
// however they are cut. A request that lacks one part has no key. Join returns nil, which
// [New] rejects, if there are no parts or if one is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		return nil
	}
	for _, part := range parts {
		if part == nil {
			return nil
		}
	}
	parts = slices.Clone(parts)
	return func(r *http.Request) (string, error) {
		keys := make([]string, len(parts))
		for i, part := range parts {
			key, err := keyOf(part, r)
			if err != nil {
				return "", err
			}
			keys[i] = key
		}
		return limit.JoinKey(keys...), nil
	}
}

// keyOf returns the key of a request, which is not empty.
func keyOf(f KeyFunc, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = ErrNoKey
	}
	return key, err
}

// isToken reports whether s is a token of RFC 9110, as names of fields are.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	return isAlnum(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
