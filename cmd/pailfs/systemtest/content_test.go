package systemtest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
)

// version is one content of one key. Its bytes follow from it: the i-th word of
// eight bytes is the i-th output of a generator that the key and the number seed,
// and whose outputs can be traced back to i.
type version struct {
	Key    string
	Number int
	Size   int64
}

// The generator: word i is the finaliser of splitmix64 over seed + i·step.
const (
	step        = 0x9E3779B97F4A7C15
	stepInverse = 0xF1DE83E19937733D
)

func (v version) seed() uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%d", v.Key, v.Number) // a hash takes everything
	return mix(h.Sum64())
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// unmix is the inverse of mix.
func unmix(x uint64) uint64 {
	x = (x ^ x>>31 ^ x>>62) * 0x319642B2D24D8EC3
	x = (x ^ x>>27 ^ x>>54) * 0x96DE1B173F119089
	return x ^ x>>30 ^ x>>60
}

// fill writes the bytes from off into p.
func (v version) fill(p []byte, off int64) {
	seed := v.seed()
	var w [8]byte
	for len(p) > 0 {
		i := uint64(off) / 8
		if skip := off % 8; skip != 0 || len(p) < 8 {
			binary.LittleEndian.PutUint64(w[:], mix(seed+i*step))
			n := copy(p, w[skip:])
			p, off = p[n:], off+int64(n)
			continue
		}
		binary.LittleEndian.PutUint64(p, mix(seed+i*step))
		p, off = p[8:], off+8
	}
}

// content returns all bytes.
func (v version) content() []byte {
	p := make([]byte, v.Size)
	v.fill(p, 0)
	return p
}

// wrong returns the index of the first byte of p that is not the version's at
// off, -1 if there is none.
func (v version) wrong(p []byte, off int64) int {
	seed := v.seed()
	start := 0
	if skip := int(-off & 7); skip != 0 {
		start = min(skip, len(p))
		if bad := v.wrongByte(p[:start], off); bad >= 0 {
			return bad
		}
	}
	x := seed + uint64(off+int64(start))/8*step
	at := start
	for ; at+8 <= len(p); at += 8 {
		if binary.LittleEndian.Uint64(p[at:]) != mix(x) {
			return at + max(v.wrongByte(p[at:at+8], off+int64(at)), 0)
		}
		x += step
	}
	if bad := v.wrongByte(p[at:], off+int64(at)); bad >= 0 {
		return at + bad
	}
	return -1
}

// wrongByte is wrong for a few bytes.
func (v version) wrongByte(p []byte, off int64) int {
	want := make([]byte, len(p))
	v.fill(want, off)
	for i := range p {
		if p[i] != want[i] {
			return i
		}
	}
	return -1
}

// explain says what the bytes are that should be the version's at off: how long
// the wrong stretch is and where its bytes belong.
func (v version) explain(p []byte, off int64, known []version) string {
	first := v.wrong(p, off)
	if first < 0 {
		return "nothing is wrong"
	}
	end := first + 1
	for next := end; next < len(p) && next < end+16; next++ { // a byte may be right by chance
		if v.wrongByte(p[next:next+1], off+int64(next)) >= 0 {
			end = next + 1
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q version %d of %d bytes: %d bytes read at %d, from %d (%d in) for %d bytes wrong, ",
		v.Key, v.Number, v.Size, len(p), off, off+int64(first), first, end-first)
	word := (first + int(-(off+int64(first))&7))
	if word+8 > len(p) {
		return b.String() + fmt.Sprintf("% x", p[first:])
	}
	x := binary.LittleEndian.Uint64(p[word:])
	if x == 0 {
		return b.String() + "which are zeros"
	}
	for _, o := range append([]version{v}, known...) {
		if at := int64((unmix(x)-o.seed())*stepInverse) * 8; at >= 0 && at < o.Size {
			fmt.Fprintf(&b, "which are those of %q version %d at %d (where %d was read)", o.Key, o.Number, at, off+int64(word))
			return b.String()
		}
	}
	fmt.Fprintf(&b, "which are % x, of no known version", p[word:word+8])
	return b.String()
}

func TestContentCanBeTraced(t *testing.T) {
	v, other := version{"a/b", 1, 1 << 20}, version{"a/b", 2, 1 << 20}
	p := v.content()
	for _, off := range []int64{0, 1, 7, 8, 65_537} {
		if bad := v.wrong(p[off:off+100], off); bad >= 0 {
			t.Errorf("at %d byte %d is wrong", off, bad)
		}
		if v.wrong(p[off:off+100], off+1) < 0 || other.wrong(p[off:off+100], off) < 0 {
			t.Errorf("at %d other bytes pass for right", off)
		}
	}
	for i := range 100 {
		q := append([]byte(nil), p[3:3+100]...)
		q[i] ^= 0x10
		if bad := v.wrong(q, 3); bad != i {
			t.Errorf("byte %d was changed, %d was found", i, bad)
		}
	}
	other.fill(p[4096:8192], 512)
	if said := v.explain(p[100:10_000], 100, []version{other}); !strings.Contains(said, `of "a/b" version 2 at 512 (where 4096`) {
		t.Error(said)
	}
	clear(p[4096:8192])
	if said := v.explain(p[100:10_000], 100, nil); !strings.Contains(said, "from 4096 (3996 in) for 40") || !strings.Contains(said, "zeros") {
		t.Error(said)
	}
}
