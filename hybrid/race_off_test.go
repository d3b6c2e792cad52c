//go:build !race

package hybrid

// underRace tells that the race detector is on.
const underRace = false
