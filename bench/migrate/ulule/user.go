package ulule

import "net/http"

// user is whatever the service knows a caller by.
func user(r *http.Request) string { return r.Header.Get("X-User") }
