package state

import (
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// OursAt returns what changes of ours may have made of the key of op: want, what was tried
// before, and what its file has become last.
func (st *State) OursAt(op order.Operation, want Intent) []Intent {
	k := st.Keys[op.Key]
	all := append([]Intent{want}, k.Maybe...)
	if f := st.Files[op.File]; f != nil && f.PubGen > 0 && f.PubCRC != 0 && f.Published == k.Remote {
		all = append(all, Intent{Kind: order.Put, Size: k.Remote.Size, CRC: f.PubCRC})
	}
	return all
}

// Expected reports whether info, which the key of op has, is what it had last.
func (st *State) Expected(op order.Operation, info oss.Info) bool {
	k := st.Keys[op.Key]
	return info.ETag == "" && !k.Present() || SameBytes(info.Object, k.Remote) && !st.otherSum(op, k, info)
}

// SameBytes reports whether a and b have one content, at one key, whatever their times
// say: that of a small upload may be another clock's.
func SameBytes(a, b oss.Object) bool {
	return a.Key == b.Key && a.ETag == b.ETag && a.Size == b.Size
}

// otherSum reports whether the file of op is known to have become the version that k
// had last, and info has another CRC-64.
func (st *State) otherSum(op order.Operation, k *Key, info oss.Info) bool {
	f := st.Files[op.File]
	return f != nil && f.PubGen > 0 && f.PubCRC != 0 && f.Published == k.Remote && info.HasCRC64 && info.CRC64 != f.PubCRC
}

// Matches reports whether info is what i has made of the key.
func (i Intent) Matches(info oss.Info) bool {
	if i.Kind == order.Delete {
		return info.ETag == ""
	}
	return info.ETag != "" && i.Kind == order.Put && info.HasCRC64 && info.CRC64 == i.CRC && info.Size == i.Size
}
