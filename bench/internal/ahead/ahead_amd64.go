package ahead

import "unsafe"

// Fetch has the cache line at p come into this processor's cache and does not wait
// for it. Elsewhere than on amd64 it does nothing.
//
//go:noescape
func Fetch(p unsafe.Pointer)
