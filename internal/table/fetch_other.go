//go:build !amd64

package table

import "unsafe"

// fetchToWrite does nothing: prefetching is only for amd64, and checks work without it.
func fetchToWrite(unsafe.Pointer) {}
