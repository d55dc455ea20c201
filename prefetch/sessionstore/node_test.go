package sessionstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pailfs/pailfs/prefetch/session"
)

// sessionFile is the file of a session of worker n that was saved long ago, or now.
func sessionFile(saved time.Time, lease time.Duration, size int) []byte {
	header := fmt.Appendf(nil, `{"pailfs_session":2,"buffer":1,"lease_seconds":%v,"saved":%q}`+"\n", lease.Seconds(), saved.UTC().Format(time.RFC3339))
	return append(header, bytes.Repeat([]byte("{}\n"), max(0, size-len(header))/3)...)
}

func TestSessionFilesGoWithTheirSessionAlsoAfterACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), Dir)
	before := NewNode(dir, 0)
	now := time.Now()
	for worker, lease := range []time.Duration{time.Hour, time.Minute} {
		if err := before.Save(t.Context(), session.Key{Worker: worker}, sessionFile(now.Add(-30*time.Minute), lease, 100)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"torn.session": "PNG", "x.session.tmp": "half"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := NewNode(dir, 0)
	s.Find(slog.New(slog.DiscardHandler))
	files := func() (n int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if n := files(); n != 1 || s.Bytes() != diskBlock {
		t.Errorf("%d files with %d bytes are left, want the one whose lease lasts", n, s.Bytes())
	}
	s.Expire(now.Add(time.Hour))
	if n := files(); n != 0 || s.Bytes() != 0 {
		t.Errorf("%d files with %d bytes are left after all leases", n, s.Bytes())
	}
	// What is used again does not end with the lease that was found.
	if err := s.Save(t.Context(), session.Key{}, sessionFile(now, time.Hour, 100)); err != nil {
		t.Fatal(err)
	}
	s.Expire(now.Add(100 * time.Hour))
	if n := files(); n != 1 {
		t.Errorf("%d files are left of a session that is open", n)
	}
	if err := s.Remove(t.Context(), session.Key{}); err != nil || files() != 0 || s.Bytes() != 0 {
		t.Errorf("%v, %d files, %d bytes", err, files(), s.Bytes())
	}
	if err := s.Remove(t.Context(), session.Key{}); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func TestSessionFilesHaveABoundAndMakeRoom(t *testing.T) {
	const size = 8 * 100 * diskBlock
	dir := filepath.Join(t.TempDir(), Dir)
	before := NewNode(dir, size)
	now := time.Now()
	save := func(s *Node, worker, blocks int) error {
		return s.Save(t.Context(), session.Key{Worker: worker}, sessionFile(now.Add(time.Duration(worker)*time.Second), time.Hour, blocks*diskBlock))
	}
	for worker := range 3 {
		if err := save(before, worker, 30); err != nil {
			t.Fatal(err)
		}
	}
	if err := save(before, 3, 30); err == nil {
		t.Error("more was saved than there is room for")
	}
	if err := save(before, 0, 40); err != nil {
		t.Errorf("a file cannot be replaced by one for which there is room: %v", err)
	}
	s := NewNode(dir, size)
	s.Find(slog.New(slog.DiscardHandler))
	if s.Bytes() != 100*diskBlock {
		t.Errorf("%d bytes were found", s.Bytes())
	}
	if err := save(s, 7, 50); err != nil {
		t.Errorf("what was left does not make room: %v", err)
	}
	if _, err := os.Stat(s.path(session.Key{Worker: 2})); err != nil || s.Bytes() != 80*diskBlock {
		t.Errorf("%v, %d bytes: what ends last should have stayed", err, s.Bytes())
	}
}
