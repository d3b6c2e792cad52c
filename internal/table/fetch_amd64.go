package table

import "unsafe"

// fetchToRead prefetches the cache line at p and does not wait for it. p may be nil.
//
//go:noescape
func fetchToRead(p unsafe.Pointer)

// fetchToWrite is fetchToRead of a line that will be written to: other processors give it up. The
// tempting alternative, to prefetch it for reading, is slower: if another processor has written to
// the line, the write would wait a second time for as long.
//
//go:noescape
func fetchToWrite(p unsafe.Pointer)
