package limit

import "strconv"

// JoinKey makes one key of several parts, such as a user and an action. Different
// parts make different keys: each part is preceded by its length in bytes, so that
// "a:b" and "c" do not give the key of "a" and "b:c". No parts make the empty key.
func JoinKey(parts ...string) string {
	size := 0
	for _, p := range parts {
		size += len(p) + 4
	}
	b := make([]byte, 0, size)
	for _, p := range parts {
		b = strconv.AppendInt(b, int64(len(p)), 10)
		b = append(b, ':')
		b = append(b, p...)
	}
	return string(b)
}
