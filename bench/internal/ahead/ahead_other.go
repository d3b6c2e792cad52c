//go:build !amd64

package ahead

import "unsafe"

// Fetch does nothing: this is for amd64 alone.
func Fetch(unsafe.Pointer) {}
