package table

import "unsafe"

// fetchToRead prefetches the cache line at p and does not wait for it. p may be nil.
//
//go:noescape
func fetchToRead(p unsafe.Pointer)

// fetchToWrite is fetchToRead of a line that is going to be written to: other processors
// give it up. To prefetch it for reading would be wrong: when another processor has written
// to it, the write would wait once more for as long.
//
//go:noescape
func fetchToWrite(p unsafe.Pointer)
