package redisstore

import (
	"fmt"
	"strings"
	"testing"
)

// The groups of an operation count the same in any order. One that is unknown or
// incomplete fails its own key alone.
func TestGroupsOfAnOperation(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		now := b.now()
		list := func(units int) string { return fmt.Sprintf("%d:%d:0", now/60_000_000, units) }
		rules := "f 1000/1000000 7200000 1000000 0\nw 60000000 2 7200000\n"
		base := map[string]string{"f": "f1 2 2000000 0 2000000 0", "w": "w1 2 " + list(2)}
		raise := map[string]string{"f": ";r 7 7 9000000 0", "w": ";r 7 7 " + list(9)}
		back := map[string]string{"f": ";b 4000000 0 7 9000000 0", "w": ";b 7 " + list(4)}
		ask := func(kind, name, groups string) string {
			keys := []string{"{" + name + "}ledger", "{" + name + "}key", "{" + name + "}other"}
			other := map[string]string{"f": "w", "w": "f"}[kind] // is not to be harmed
			ops := base[kind] + groups + "\n" + base[other] + "\n"
			reply, err := b.rdb.Eval(ctx, scriptBatch.source, keys, "1", "0", "1", "60000", "00", "4", rules, ops).Text()
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(reply, "\n")
			if len(lines) != 3 || strings.HasPrefix(lines[2], "e") {
				t.Fatalf("%q", reply)
			}
			return lines[1]
		}
		for _, kind := range []string{"f", "w"} {
			one := ask(kind, kind+"1", raise[kind]+back[kind])
			two := ask(kind, kind+"2", back[kind]+raise[kind])
			for i, state := range []string{one, two} {
				// 9 raised, 4 handed back, 2 booked. A funnel leaks meanwhile.
				var gen, born, us, rem int64
				if n, _ := fmt.Sscanf(state, "f %d %d %d %d", &gen, &born, &us, &rem); n == 4 && us-b.now() <= 7_000_000 && us-now > 6_000_000 {
					state = "7:0"
				}
				if !strings.HasSuffix(state, "7:0") {
					t.Errorf("%s, order %d: %v", kind, i, state)
				}
			}
			for i, bad := range []string{";x", ";r", ";r 7", ";b", ";b x", ";base 1 2 3 4 5", ";", raise[kind] + ";", raise[kind] + " 7", " 7x", "x"} {
				if state := ask(kind, fmt.Sprint(kind, "bad", i), bad); !strings.HasPrefix(state, "e ") {
					t.Errorf("%s, %q: %v", kind, bad, state)
				}
			}
		}
	})
}
