package oracle

// Fullest returns the most units that came within any time of that length, its end not included.
// Each entry is a unit, in the order of time.
func Fullest[T ~int64](times []T, length T) (most int) {
	first := 0
	for i, at := range times {
		for at-times[first] >= length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
