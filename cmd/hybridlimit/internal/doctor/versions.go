package doctor

import (
	"fmt"
	"strings"
)

// version is a server with which all tests that need a real one have been run, by
// .ci/servers-test or, as the first, by .ci/run. docs/redis.md has the same list.
type version struct {
	product, number string
	differs         string // from Redis 7.0, as far as users notice; a sentence or empty
}

var tested = []version{
	{product: "Redis", number: "7.0.15"},
	{product: "Redis", number: "8.0.2"},
	{product: "Valkey", number: "8.1.1"},
	{product: "Valkey", number: "9.1.2", differs: "Messages of 16 kB or more do not count against client-output-buffer-limit."},
}

// series returns the first two parts of a version.
func series(number string) string {
	parts := strings.SplitN(number, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// known says what is known of a version of a product, and whether it, or another of its
// series, was tested.
func known(product, number string) (text string, is bool) {
	if number == "" {
		return "The server does not say its version. Tested are " + testedVersions() + ".", false
	}
	for _, v := range tested {
		if v.product != product || series(v.number) != series(number) {
			continue
		}
		text = "This version is tested."
		if v.number != number {
			text = fmt.Sprintf("%s %s of the same series is tested.", product, v.number)
		}
		return strings.TrimSpace(text + " " + v.differs), true
	}
	return "This version is not tested. Tested are " + testedVersions() + ".", false
}

// testedVersions lists them: "Redis 1.2.3 and 4.5.6, Valkey 7.8.9".
func testedVersions() string {
	var b strings.Builder
	for i, v := range tested {
		switch {
		case i == 0:
			b.WriteString(v.product + " ")
		case v.product == tested[i-1].product:
			b.WriteString(" and ")
		default:
			b.WriteString(", " + v.product + " ")
		}
		b.WriteString(v.number)
	}
	return b.String()
}
