//go:build !amd64

package local

import "unsafe"

// These are for amd64 alone: a check is right without.
func fetchToRead(unsafe.Pointer)  {}
func fetchAt(uintptr)             {}
func fetchToWrite(unsafe.Pointer) {}
