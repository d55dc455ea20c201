package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// filledIndex makes an index of several levels, with free pages, and returns its
// content.
func filledIndex(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	ix, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var ids []content.Identity
	for batch := range 4 {
		var updates []Update
		for i := range 500 {
			id := content.Identify("bucket", oss.Object{Key: fmt.Sprintf("key %d", batch*500+i), Size: 1 << 20})
			s := new(Segment)
			s.Blocks.Add(0, 16)
			updates = append(updates, Update{ID: id, Record: Object{Key: "key", Size: 1 << 20}, Segments: map[int]*Segment{0: s, 1: s}})
			ids = append(ids, id)
		}
		if err := ix.Store(updates); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.Remove(ids[:700]); err != nil {
		t.Fatal(err)
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pagesOf returns the numbers of the pages with those flags that are in use.
func pagesOf(t *testing.T, index []byte, flags uint16) (pages []int) {
	t.Helper()
	c := &pageChecker{file: readerAt(index), size: int64(len(index))}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	free := make(map[int]bool)
	list := index[binary.NativeEndian.Uint64(mustMeta(t, c)[32:])*4096:]
	for i := range int(binary.NativeEndian.Uint16(list[10:])) {
		free[int(binary.NativeEndian.Uint64(list[boltHeader+8*i:]))] = true
	}
	for p := 2; p < int(c.pages); p++ {
		if c.seen[p/64]&(1<<(p%64)) != 0 && !free[p] && binary.NativeEndian.Uint16(index[p*4096+8:]) == flags &&
			binary.NativeEndian.Uint64(index[p*4096:]) == uint64(p) {
			pages = append(pages, p)
		}
	}
	if len(pages) == 0 {
		t.Fatalf("no page has flags %#x", flags)
	}
	return pages
}

func mustMeta(t *testing.T, c *pageChecker) []byte {
	t.Helper()
	meta, err := c.meta()
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

type readerAt []byte

// ReadAt implements [io.ReaderAt].
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, r[min(off, int64(len(r))):])
	if n < len(p) {
		return n, errors.New("the end")
	}
	return n, nil
}

func put64(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

func TestIndexWhosePagesAreNoTreesIsRefused(t *testing.T) {
	good := filledIndex(t)
	branches, leaves, free := pagesOf(t, good, boltBranch), pagesOf(t, good, boltLeaf), pagesOf(t, good, boltFreelist)
	child := func(b []byte, branch, i int) []byte { return b[branch*4096+boltHeader+i*boltElement+8:] }
	for name, damage := range map[string]func(b []byte){
		"a branch that leads to itself":    func(b []byte) { put64(child(b, branches[0], 0), uint64(branches[0])) },
		"a branch that leads to another's": func(b []byte) { put64(child(b, branches[0], 0), binary.NativeEndian.Uint64(child(b, branches[0], 1))) },
		"a branch that leads to the meta":  func(b []byte) { put64(child(b, branches[0], 0), 1) },
		"a branch that leads beyond":       func(b []byte) { put64(child(b, branches[0], 0), 1<<40) },
		"a branch that leads to a free page": func(b []byte) {
			put64(child(b, branches[0], 0), binary.NativeEndian.Uint64(b[free[0]*4096+boltHeader:]))
		},
		"a branch without children":   func(b []byte) { binary.NativeEndian.PutUint16(b[branches[0]*4096+10:], 0) },
		"a leaf that is another page": func(b []byte) { put64(b[leaves[0]*4096:], uint64(leaves[1])) },
		"a leaf with too many values": func(b []byte) { binary.NativeEndian.PutUint16(b[leaves[0]*4096+10:], 0xFFFF) },
		"a leaf that overflows":       func(b []byte) { binary.NativeEndian.PutUint32(b[leaves[0]*4096+12:], 1<<30) },
		"a leaf into another":         func(b []byte) { binary.NativeEndian.PutUint32(b[leaves[0]*4096+12:], 50) },
		"a value beyond the page":     func(b []byte) { binary.NativeEndian.PutUint32(b[leaves[0]*4096+boltHeader+12:], 1<<31) },
		"a free page in use":          func(b []byte) { put64(b[free[0]*4096+boltHeader:], uint64(leaves[0])) },
		"too many free pages":         func(b []byte) { binary.NativeEndian.PutUint16(b[free[0]*4096+10:], 0xFFFE) },
		"a free page that is none":    func(b []byte) { put64(b[free[0]*4096+boltHeader:], 1<<50) },
		"pages of zeros":              func(b []byte) { clear(b[leaves[0]*4096 : leaves[0]*4096+4096]) },
		"no meta page":                func(b []byte) { b[20], b[4096+20] = ^b[20], ^b[4096+20] },
	} {
		t.Run(name, func(t *testing.T) {
			b := slices.Clone(good)
			damage(b)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, Name), b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Open(dir); !errors.Is(err, ErrUnusable) {
				t.Errorf("%v, want ErrUnusable", err)
			}
		})
	}
}

// Whatever a damaged index still says, using it comes to an end, and panics of the
// library become errors.
func TestIndexWithRandomDamageIsUsedOrRefused(t *testing.T) {
	good := filledIndex(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	for round := range 60 {
		b := slices.Clone(good)
		for range 1 + rng.IntN(4) {
			at := rng.IntN(len(b)/4096)*4096 + rng.IntN(600) // headers and elements
			put64(b[at&^7:], rng.Uint64()>>rng.IntN(64))
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, Name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		ix, _, err := Open(dir)
		if err != nil {
			if !Damaged(err) {
				t.Errorf("round %d: %v", round, err)
			}
			refused++
			continue
		}
		var ids []content.Identity
		err = ix.Visit(func(id content.Identity, _ Object, _ content.Use, _ error) { ids = append(ids, id) })
		for _, id := range ids {
			if err == nil {
				_, _, err = ix.Load(id)
			}
		}
		if err == nil && len(ids) > 0 {
			err = ix.Remove(ids[:len(ids)/2])
		}
		if err != nil && !Damaged(err) && !errors.Is(err, ErrRecord) {
			t.Errorf("round %d: %v", round, err)
		}
		if err := ix.Close(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	t.Logf("%d of 60 refused", refused)
}
