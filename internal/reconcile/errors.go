package reconcile

import (
	"errors"
	"strings"
)

// plain returns an error without the name of a package that the user does not use.
func Plain(err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == "remote: "+inner.Error() {
		return inner
	}
	return err
}

// textOf returns what an error says, without that name.
func TextOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "remote: ")
}
