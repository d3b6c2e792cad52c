package main

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A leap year, months of 29 to 31 days, and summer time.
func TestRun(t *testing.T) {
	const want = `berlin   has used its quota up, and has a new one on Tuesday, 1 February 00:00 +0100
tokyo    has used its quota up, and has a new one on Tuesday, 1 February 00:00 +0900
new york has used its quota up, and has a new one on Monday, 31 January 00:00 -0500
new york has used its quota up, and has a new one on Tuesday, 29 February 00:00 -0500
tokyo    has used its quota up, and has a new one on Wednesday, 1 March 00:00 +0900
berlin   has used its quota up, and has a new one on Wednesday, 1 March 00:00 +0100
new york has used its quota up, and has a new one on Friday, 31 March 00:00 -0400
tokyo    has used its quota up, and has a new one on Saturday, 1 April 00:00 +0900
berlin   has used its quota up, and has a new one on Saturday, 1 April 00:00 +0200
`
	var out bytes.Buffer
	if err := run(&out); err != nil || out.String() != want {
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
}
