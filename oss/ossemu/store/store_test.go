package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sizes lie on both sides of every boundary between ways of storing.
var sizes = []int{0, 1, 4096, packLimit - 1, packLimit, packLimit + 1, 256 << 10, 256<<10 + 1, 1 << 20, 3<<20 + 7}

func TestContentComesBackAtEverySizeAndAfterRestart(t *testing.T) {
	s := newStore(t)
	for i, n := range sizes {
		put(t, s, fmt.Sprint("key", n), pattern(i, n))
	}
	for range 2 {
		for i, n := range sizes {
			if got := read(t, s, fmt.Sprint("key", n)); !bytes.Equal(got, pattern(i, n)) {
				t.Errorf("object of %d bytes came back different", n)
			}
		}
		s = reopen(t, s)
	}
}

func TestPiecesOfContentMatch(t *testing.T) {
	s := newStore(t)
	var whole []byte
	u, err := s.CreateUpload(testBucket, "parts", Attributes{})
	if err != nil {
		t.Fatal(err)
	}
	var parts []CompletePart
	for i, n := range []int{MinPartSize, MinPartSize + 1, 500_000, 3} {
		body := pattern(i, n)
		whole = append(whole, body...)
		b, err := s.Write(bytes.NewReader(body), 1<<30, true)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.PutPart(testBucket, "parts", u.ID, i*3+1, b)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, CompletePart{p.Number, p.ETag()})
	}
	o, err := s.Complete(testBucket, "parts", u.ID, parts, false, PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "parts"); !bytes.Equal(got, whole) {
		t.Fatal("assembled object differs")
	}
	_, c, err := s.Open(testBucket, "parts")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	edges := []int64{0, 1, MinPartSize - 1, MinPartSize, MinPartSize + 1, 2 * MinPartSize, 2*MinPartSize + 1, o.Size - 3, o.Size - 1, o.Size}
	for _, from := range edges {
		for _, to := range edges {
			if to < from {
				continue
			}
			var b bytes.Buffer
			if _, err := c.CopyTo(&b, from, to-from); err != nil {
				t.Fatalf("%d to %d: %v", from, to, err)
			}
			if !bytes.Equal(b.Bytes(), whole[from:to]) {
				t.Errorf("bytes %d to %d differ", from, to)
			}
		}
	}
}

func TestOpenContentSurvivesOverwriteAndDelete(t *testing.T) {
	for _, n := range []int{1000, 1 << 20} {
		s := newStore(t)
		old := pattern(1, n)
		put(t, s, "key", old)
		o, c, err := s.Open(testBucket, "key")
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "key", pattern(2, n))
		if _, err := s.Delete(testBucket, "key"); err != nil {
			t.Fatal(err)
		}
		if got := readContent(t, o, c); !bytes.Equal(got, old) {
			t.Errorf("open object of %d bytes changed", n)
		}
		c.Close()
		if n > packLimit {
			if left := dataFiles(t, s); len(left) != 0 {
				t.Errorf("files left behind: %v", left)
			}
		}
	}
}

func TestBytesAreRemovedWithTheirLastReference(t *testing.T) {
	s := newStore(t)
	body := pattern(1, 1<<20)
	put(t, s, "a", body)
	copyOf(t, s, "a", "b")
	copyOf(t, s, "b", "c")
	for _, key := range []string{"a", "c"} {
		if _, err := s.Delete(testBucket, key); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(dataFiles(t, s)); n != 1 {
		t.Fatalf("%d files for one object with two former copies", n)
	}
	s = reopen(t, s)
	if got := read(t, s, "b"); !bytes.Equal(got, body) {
		t.Error("copy differs")
	}
	if _, err := s.Delete(testBucket, "b"); err != nil {
		t.Fatal(err)
	}
	if left := dataFiles(t, s); len(left) != 0 {
		t.Errorf("files left behind: %v", left)
	}
}

func copyOf(t testing.TB, s *Store, from, to string) *Object {
	t.Helper()
	src, c, err := s.Open(testBucket, from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o, err := s.PutCopy(testBucket, to, src, s.Share(src, c), PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFailedWritesLeaveNothing(t *testing.T) {
	s := newStore(t)
	broken := errors.New("connection lost")
	for _, n := range []int{0, 100, packLimit, packLimit + 1, 1 << 20} {
		if _, err := s.Write(&failingReader{bytes.NewReader(pattern(1, n)), broken}, 1<<30, true); !errors.Is(err, broken) {
			t.Errorf("broken body of %d bytes: error %v", n, err)
		}
		if n > 0 {
			if _, err := s.Write(bytes.NewReader(pattern(1, n)), int64(n)-1, true); !errors.Is(err, ErrTooLarge) {
				t.Errorf("body of %d bytes over its limit: error %v", n, err)
			}
		}
	}
	b, err := s.Write(bytes.NewReader(pattern(1, 1<<20)), 1<<30, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put("no-such-bucket", "key", b, PutOptions{}); !errors.Is(err, ErrNoBucket) {
		t.Errorf("put into a bucket that does not exist: %v", err)
	}
	put(t, s, "taken", nil)
	if b, err = s.Write(bytes.NewReader(pattern(1, 1<<20)), 1<<30, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(testBucket, "taken", b, PutOptions{ForbidOverwrite: true}); !errors.Is(err, ErrExists) {
		t.Errorf("put over an object that must stay: %v", err)
	}
	if left := dataFiles(t, s); len(left) != 0 {
		t.Errorf("files left behind: %v", left)
	}
}

func TestSecondOpenOfADirectoryIsRefused(t *testing.T) {
	s := newStore(t)
	if _, err := Open(Config{Dir: s.dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("second open: %v", err)
	}
}

func TestEveryTornJournalEndIsCut(t *testing.T) {
	s := newStore(t)
	put(t, s, "before", pattern(1, 100))
	size := s.mu.journal.size
	put(t, s, "torn", pattern(2, 200))
	full := s.mu.journal.size
	journal := s.index.journal(1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	for cut := size; cut < full; cut++ {
		writeFile(t, journal, whole[:cut])
		s := openStore(t, s.dir)
		if _, err := s.Object(testBucket, "torn"); !errors.Is(err, ErrNoKey) {
			t.Fatalf("cut at %d of %d: %v", cut, full, err)
		}
		read(t, s, "before")
		put(t, s, "after", pattern(3, 300))
		s = reopen(t, s)
		if got := read(t, s, "after"); !bytes.Equal(got, pattern(3, 300)) {
			t.Fatalf("cut at %d: what was written behind the cut is lost", cut)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedIndexIsRefused(t *testing.T) {
	s := newStore(t)
	put(t, s, "a", pattern(1, 100))
	put(t, s, "b", pattern(2, 100))
	journal := s.index.journal(1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	packs := dataFiles(t, s)
	if len(packs) != 1 {
		t.Fatalf("packs: %v", packs)
	}
	pack := filepath.Join(s.dir, packs[0])
	packed, err := os.ReadFile(pack)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x40
		writeFile(t, journal, damaged)
		writeFile(t, pack, packed) // the round before may have found it unused
		s, err := Open(Config{Dir: s.dir})
		if err == nil {
			// Damage to a length can look like a torn end, never like other content.
			for i, key := range []string{"a", "b"} {
				if _, err := s.Object(testBucket, key); err == nil && !bytes.Equal(read(t, s, key), pattern(i+1, 100)) {
					t.Errorf("damage at %d changed %q", at, key)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	writeFile(t, journal, whole)
	if err := os.Remove(pack); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: s.dir}); err == nil || !strings.Contains(err.Error(), pack) {
		t.Errorf("open with a missing pack: %v", err)
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	dir := newStore(t).dir
	var e encoder
	e.byte(recordHeader)
	e.string(formatMagic)
	e.uint(formatVersion + 1)
	other := t.TempDir()
	if err := os.MkdirAll(filepath.Join(other, "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(other, "index", "journal-00000001"), appendFrame(nil, e.b))
	if _, err := Open(Config{Dir: other}); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("open of a later format: %v", err)
	}
	writeFile(t, filepath.Join(dir, "index", "notes.txt"), nil)
	if _, err := indexDir(filepath.Join(dir, "index")).list(); err == nil {
		t.Error("a file that is not ours was accepted")
	}
}

func TestSnapshotsReplaceLongJournals(t *testing.T) {
	s := newStore(t)
	s.longJournal = 4096
	want := make(map[string][]byte)
	for i := range 600 {
		key := fmt.Sprint("key", i%50)
		want[key] = pattern(i, i)
		put(t, s, key, want[key])
		if i == 300 {
			if _, err := s.CreateUpload(testBucket, "unfinished", Attributes{ContentType: "text/plain"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.background.Wait()
	found, err := s.index.list()
	if err != nil {
		t.Fatal(err)
	}
	if len(found.snapshots) != 1 || found.snapshots[0] < 2 || len(found.journals) > 2 {
		t.Errorf("after many changes: %+v", found)
	}
	for range 2 {
		for key, content := range want {
			if got := read(t, s, key); !bytes.Equal(got, content) {
				t.Errorf("%q differs", key)
			}
		}
		page, err := s.Uploads(testBucket, UploadQuery{Limit: 10})
		if err != nil || len(page.Uploads) != 1 || page.Uploads[0].Attrs.ContentType != "text/plain" {
			t.Errorf("uploads: %+v, %v", page, err)
		}
		s = abandon(t, s)
	}
}

func TestADeathWhileASnapshotIsWrittenLosesNothing(t *testing.T) {
	s := newStore(t)
	put(t, s, "before", pattern(1, 100))
	// As the death leaves it: the next journal begun, the snapshot not renamed.
	s.mu.Lock()
	j, err := createJournal(s.index.journal(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.mu.journal.close(); err != nil {
		t.Fatal(err)
	}
	s.mu.journal, s.mu.generation = j, 2
	s.mu.Unlock()
	writeFile(t, s.index.snapshot(2)+".tmp", []byte("half"))
	put(t, s, "after", pattern(2, 100))
	s = abandon(t, s)
	for i, key := range []string{"before", "after"} {
		if got := read(t, s, key); !bytes.Equal(got, pattern(i+1, 100)) {
			t.Errorf("%q differs", key)
		}
	}
}

func TestThinPacksAreRewrittenAtStart(t *testing.T) {
	s := newStore(t)
	const objects = 100
	for i := range objects {
		put(t, s, fmt.Sprint("key", i), pattern(i, 40_000))
	}
	for i := range objects {
		if i%10 != 0 {
			if _, err := s.Delete(testBucket, fmt.Sprint("key", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := dataFiles(t, s)
	s = reopen(t, s)
	after := dataFiles(t, s)
	if cmp.Equal(before, after) || len(after) != 1 {
		t.Errorf("packs before %v, after %v", before, after)
	}
	info, err := os.Stat(filepath.Join(s.dir, after[0]))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != objects/10*40_000 {
		t.Errorf("the new pack has %d bytes", info.Size())
	}
	for range 2 {
		for i := 0; i < objects; i += 10 {
			if got := read(t, s, fmt.Sprint("key", i)); !bytes.Equal(got, pattern(i, 40_000)) {
				t.Errorf("key%d differs", i)
			}
		}
		s = abandon(t, s)
	}
}

func TestFilesThatNothingRefersToAreRemovedAtStart(t *testing.T) {
	s := newStore(t)
	put(t, s, "kept", pattern(1, 1<<20))
	// As a death between the body and its record leaves it.
	if _, err := s.Write(bytes.NewReader(pattern(2, 1<<20)), 1<<30, true); err != nil {
		t.Fatal(err)
	}
	if n := len(dataFiles(t, s)); n != 2 {
		t.Fatalf("%d files", n)
	}
	s = abandon(t, s)
	if n := len(dataFiles(t, s)); n != 1 {
		t.Errorf("%d files after start", n)
	}
	put(t, s, "new", pattern(3, 1<<20))
	if got := read(t, s, "kept"); !bytes.Equal(got, pattern(1, 1<<20)) {
		t.Error("a new file took the place of one in use")
	}
}

func TestReadersAndWritersOfOneKeySeeWholeVersions(t *testing.T) {
	s := newStore(t)
	versions := [][]byte{pattern(1, 1000), pattern(2, 200_000), pattern(3, 0), pattern(4, 70_000)}
	put(t, s, "key", versions[0])
	var wg sync.WaitGroup
	for i := range versions {
		wg.Go(func() {
			for range 200 {
				b, err := s.Write(bytes.NewReader(versions[i]), 1<<30, true)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Put(testBucket, "key", b, PutOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for range 200 {
				o, c, err := s.Open(testBucket, "key")
				if err != nil {
					t.Error(err)
					return
				}
				var got bytes.Buffer
				if _, err := c.CopyTo(&got, 0, o.Size); err != nil {
					t.Error(err)
				}
				c.Close()
				whole := false
				for _, v := range versions {
					whole = whole || bytes.Equal(got.Bytes(), v)
				}
				if !whole {
					t.Error("read a mixture of versions")
				}
			}
		})
	}
	wg.Wait()
}
