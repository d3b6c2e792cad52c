#include "textflag.h"

// func Fetch(p unsafe.Pointer)
TEXT ·Fetch(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET
