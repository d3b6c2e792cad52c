package local

import "unsafe"

// fetchToRead has the cache line at p come into this processor's cache and does not
// wait for it, as whoever loads something from it does in the end.
//
//go:noescape
func fetchToRead(p unsafe.Pointer)

// fetchAt is fetchToRead of what may not be there any more.
func fetchAt(address uintptr)

// fetchToWrite is fetchToRead of a line that is going to be written to: no other
// processor keeps it. To have it come for reading, and then once more for writing,
// would take twice as long when another one has written to it.
//
//go:noescape
func fetchToWrite(p unsafe.Pointer)
