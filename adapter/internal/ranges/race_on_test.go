//go:build race

package ranges

const raceEnabled = true
