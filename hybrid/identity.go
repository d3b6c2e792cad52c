package hybrid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

// identities makes what distinguishes this process from every other, including one that was
// copied from it. A virtual machine that is cloned, or restored from a snapshot, has the
// memory of the original, and with it the state of every random generator. So identities
// come from outside of the process.
type identities struct {
	name  func() string // of a node
	nonce func() uint64 // of a flight
}

// systemIdentities returns identities from the operating system.
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
