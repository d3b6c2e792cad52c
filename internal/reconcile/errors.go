package reconcile

import (
	"errors"
	"strings"
)

// Plain returns err without the prefix "remote: ", the name of a package that the user does not use.
func Plain(err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == "remote: "+inner.Error() {
		return inner
	}
	return err
}

// TextOf returns the text of err without that prefix, and nothing for nil.
func TextOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "remote: ")
}
