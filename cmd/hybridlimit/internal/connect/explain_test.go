package connect

import (
	"strings"
	"testing"
)

// redisError is an error that Redis has answered.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// Doctor says which permission is missing, but without that one it cannot connect itself.
func TestPermissionToAskForTheSlots(t *testing.T) {
	target := &Target{Name: "somewhere"}
	for answer, want := range map[redisError]string{
		"NOPERM this user has no permissions to run the 'cluster|slots' command":                    "+cluster.",
		"NOPERM this user has no permissions to run the 'cluster' command or its subcommand":        "+cluster.",
		"NOPERM User limiter has no permissions to run the 'cluster|slots' command":                 "+cluster.",
		"NOPERM this user has no permissions to run the 'dbsize' command":                           "doctor says which.",
		"NOPERM this user has no permissions to access one of the keys used as arguments (cluster)": "doctor says which.",
	} {
		if text := target.Explain(answer).Error(); !strings.HasSuffix(text, want) {
			t.Errorf("%s: %s", answer, text)
		}
	}
}
