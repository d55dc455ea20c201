package programtest

import (
	"bytes"
	"net/http"
	"os"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// WritableMount mounts in the foreground with a cache directory.
func WritableMount(t *testing.T, s *Store, cacheDir string, flags ...string) (*Foreground, string) {
	t.Helper()
	at := NewMountPoint(t)
	args := append([]string{"mount", "oss://" + TestBucket, at, "--endpoint", s.Endpoint, "--cache-dir", cacheDir}, flags...)
	return StartForeground(t, Environ(), at, args...), at
}

// Holds fails unless the bucket has content at key.
func (s *Store) Holds(t *testing.T, key, content string) {
	t.Helper()
	var got bytes.Buffer
	if err := s.Get(TestBucket, key, &got); err != nil || got.String() != content {
		t.Errorf("%s holds %q (%v), want %q", key, got.String(), err, content)
	}
}

// RefuseUploads makes every upload fail for good, or ends that.
func (s *Store) RefuseUploads(t *testing.T, refuse bool) {
	t.Helper()
	var faults []ossemu.Fault
	if refuse {
		faults = []ossemu.Fault{{Operation: "PutObject", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden}}
	}
	if err := s.SetFaults(faults); err != nil {
		t.Fatal(err)
	}
}

// WriteFile writes a file that everybody may read.
func WriteFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
