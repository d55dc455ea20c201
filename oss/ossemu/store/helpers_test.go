package store

import (
	"bytes"
	"errors"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBucket = "bucket"

// openStore opens the store in dir until the test ends.
func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// newStore opens a new store with one bucket.
func newStore(t testing.TB) *Store {
	t.Helper()
	s := openStore(t, t.TempDir())
	if err := s.CreateBucket(Bucket{Name: testBucket}); err != nil {
		t.Fatal(err)
	}
	return s
}

// reopen closes the store and opens it again.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openStore(t, s.dir)
}

// abandon leaves the store as the death of its process would, and opens the
// directory anew.
func abandon(t testing.TB, s *Store) *Store {
	t.Helper()
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.background.Wait()
	if err := errors.Join(s.lock.Close(), s.mu.journal.close()); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.data.packs.open {
		if err := f.pack.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return openStore(t, s.dir)
}

func put(t testing.TB, s *Store, key string, content []byte) *Object {
	t.Helper()
	b, err := s.Write(bytes.NewReader(content), 1<<40, true)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Put(testBucket, key, b, PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// read returns the content of a key and checks size and checksum on the way.
func read(t testing.TB, s *Store, key string) []byte {
	t.Helper()
	o, c, err := s.Open(testBucket, key)
	if err != nil {
		t.Fatalf("open %q: %v", key, err)
	}
	defer c.Close()
	return readContent(t, o, c)
}

func readContent(t testing.TB, o *Object, c *Content) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := c.CopyTo(&b, 0, o.Size); err != nil {
		t.Fatal(err)
	}
	if sum := crc64.Checksum(b.Bytes(), crcTable); sum != o.CRC64 {
		t.Fatalf("content has CRC-64 %d, the object says %d", sum, o.CRC64)
	}
	return b.Bytes()
}

// dataFiles lists the files that hold bytes.
func dataFiles(t testing.TB, s *Store) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"blobs", "packs"} {
		err := filepath.WalkDir(filepath.Join(s.dir, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found = append(found, strings.TrimPrefix(path, s.dir+"/"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// pattern is n bytes that differ with the seed and along the way.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// failingReader gives some bytes, then an error.
type failingReader struct {
	r   io.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
