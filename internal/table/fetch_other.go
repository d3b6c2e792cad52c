//go:build !amd64

package table

import "unsafe"

// fetchToRead and fetchToWrite do nothing: prefetching is only for amd64, and checks work without
// it.
func fetchToRead(unsafe.Pointer)  {}
func fetchToWrite(unsafe.Pointer) {}
