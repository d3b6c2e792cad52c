// Package browsertest tests the page of the directory above in a real browser, Chromium, with a real
// Redis: what its script does, that its policy lets its style and script pass and nothing else, and
// that it can be read on a phone, in the dark and without script. It also makes the pictures of
// docs/admin.md:
//
//	GOWORK=off go test -run Pictures . -pictures ../../../docs
//
// It is a module of its own, and not in the workspace: nobody else is to have the driver of a browser
// among the dependencies. Run it with GOWORK=off.
package browsertest
