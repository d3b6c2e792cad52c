//go:build !amd64

package table

import "unsafe"

// Prefetching is for amd64 alone: a check is right without it.
func fetchToRead(unsafe.Pointer)  {}
func fetchToWrite(unsafe.Pointer) {}
