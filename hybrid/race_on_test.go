//go:build race

package hybrid

// underRace reports that the race detector is on.
const underRace = true
