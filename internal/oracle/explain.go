package oracle

import (
	"fmt"
	"strings"
)

// Explain says where the units of a period are: a line for each node. node is
// the one whose knowledge it is about; -1: Redis.
func (b *Book) Explain(node int, p Period) string {
	edition := b.edition
	if s := b.nodes[node]; s != nil && node != nobody {
		edition = s.view
	}
	var out strings.Builder
	fmt.Fprintf(&out, "edition %d of %d", edition, b.edition)
	if b.loss != nil {
		fmt.Fprintf(&out, ", what came after edition %d is lost", b.loss.kept)
	}
	for _, j := range b.order {
		s := b.nodes[j]
		from := s.after(p.From)
		if from == s.end() {
			continue
		}
		fmt.Fprintf(&out, "\n  node %d: %d units admitted, %d before the latest reset, %d may be lost, %d booked, %d booked in that edition, %d while cut off; it knows its own from %d of %d on",
			j, s.sum(s.all, from, s.end()), s.sum(s.all, from, s.floor), s.sum(s.all, from, s.end())-s.sum(s.low, from, s.end()),
			s.sum(s.all, from, s.booked), s.sum(s.all, from, s.markAt(edition)), s.sum(s.apart, from, s.end()), s.own, s.end())
	}
	return out.String()
}
