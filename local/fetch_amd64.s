#include "go_asm.h"
#include "textflag.h"

// func fetchToWrite(p unsafe.Pointer)
TEXT ·fetchToWrite(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX), which processors without it ignore
	RET

// func fetchToRead(p unsafe.Pointer)
TEXT ·fetchToRead(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func fetchAt(address uintptr)
TEXT ·fetchAt(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ address+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func fetchWindow(c *Counter)
//
// The lines of a windowCounter behind the counter: what it has besides, what a check of
// the window reads and writes, and its buckets.
TEXT ·fetchWindow(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ c+0(FP), AX
	PREFETCHT0 windowCounter_more(AX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x88; LONG $(windowCounter_small+window_cur) // PREFETCHW of these
	BYTE $0x0F; BYTE $0x0D; BYTE $0x88; LONG $(windowCounter_small+small_first)
	RET
