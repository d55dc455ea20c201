package presence

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPresenceTellsWhatWasChanged compares it with one truth for each byte, through the
// record that it is written down with.
func TestPresenceTellsWhatWasChanged(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		size, chunk := r.Int64N(3000), 1+r.Int64N(40)
		n := New(size, chunk, "")
		based := make([]bool, 4000) // the base's
		for i := range size {
			based[i] = true
		}
		for range 20 {
			off, bytes := r.Int64N(3500), r.Int64N(200)
			switch r.IntN(8) {
			case 0:
				n.Cut(off)
				for i := off; i < int64(len(based)); i++ {
					based[i] = false
				}
				size = min(size, off)
			case 1:
				limit, local := n.Record()
				n = New(limit, chunk, local)
			default:
				for _, e := range n.Torn(off, bytes) {
					if e.Off >= off && e.End() <= off+bytes || !based[e.Off] {
						t.Fatalf("seed %d: chunk at %d, %d bytes, is torn by %d at %d", seed, e.Off, e.Size, bytes, off)
					}
				}
				n.Changed(off, bytes)
				for i := off; i < min(off+bytes, size); i++ {
					for k := i / chunk * chunk; k < min((i/chunk+1)*chunk, size); k++ {
						based[k] = false
					}
				}
			}
			var want []Extent
			for i := range int64(len(based)) {
				switch k := len(want) - 1; {
				case !based[i]:
				case k >= 0 && want[k].End() == i:
					want[k].Size++
				default:
					want = append(want, Extent{i, 1})
				}
			}
			missing := 0
			for _, e := range n.Absent(off, bytes) {
				if e.Off < off || e.Size <= 0 || e.End() > off+bytes {
					t.Fatalf("seed %d: %d bytes at %d are absent of %d at %d", seed, e.Size, e.Off, bytes, off)
				}
				for i := e.Off; i < e.End() && based[i]; i++ {
					missing++
				}
			}
			for i := off; i < off+bytes; i++ {
				if based[i] {
					missing--
				}
			}
			if missing != 0 {
				t.Fatalf("seed %d: of %d bytes at %d others are absent than are the base's", seed, bytes, off)
			}
			got := n.Absent(0, int64(len(based)))
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(Extent{})); diff != "" || n.Lacks() != (len(want) > 0) {
				t.Fatalf("seed %d: lacks=%v (-want +got):\n%s", seed, n.Lacks(), diff)
			}
		}
	}
}

// TestDamagedPresenceIsTakenAsFarAsItGoes: a record that is no such thing must not
// bring down who reads it.
func TestDamagedPresenceIsTakenAsFarAsItGoes(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		local := make([]byte, r.IntN(40))
		for i := range local {
			local[i] = byte(r.Uint32())
		}
		n := New(r.Int64N(100_000), r.Int64N(500), string(local))
		if limit, again := n.Record(); len(New(limit, n.chunk, again).Absent(0, limit)) != len(n.Absent(0, limit)) {
			t.Fatalf("seed %d: it does not come back", seed)
		}
	}
}

func TestChunksGrowWithTheFile(t *testing.T) {
	for size, want := range map[int64]int64{8 << 20: 1 << 20, 1 << 40: 1 << 20, 1<<40 + 1: 2 << 20, 48 << 40: 64 << 20} {
		if got := ChunkOf(1<<20, size); got != want {
			t.Errorf("%d bytes have chunks of %d, want %d", size, got, want)
		}
	}
}
