package hybrid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

// identities is where a core gets what tells it apart from every other process,
// one that was copied from it included: a virtual machine that is cloned, or
// restored from a snapshot, has the memory of the original, and with it the state of
// every generator in it. Whoever runs the core takes them from outside.
type identities struct {
	name  func() string // for a node
	nonce func() uint64 // for a flight
}

// systemIdentities asks the operating system.
func systemIdentities() identities {
	return identities{
		name: func() string {
			var b [12]byte
			_, _ = rand.Read(b[:]) // never fails: the runtime would crash first
			return hex.EncodeToString(b[:])
		},
		nonce: func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:])
			return binary.BigEndian.Uint64(b[:])
		},
	}
}
