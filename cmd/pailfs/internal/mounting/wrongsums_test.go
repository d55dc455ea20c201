package mounting

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// TestWrongChecksumsMakeNoConflictsOfOurOwn: a store, or what stands before it, whose answers
// name wrong checksums, and whose answers to uploads are lost now and then.
func TestWrongChecksumsMakeNoConflictsOfOurOwn(t *testing.T) {
	s := programtest.StartStore(t)
	if err := s.SetFaults([]ossemu.Fault{
		{Operation: "PutObject", Kind: ossemu.FaultLostReply, Every: 3},
		{Operation: "PutObject", Kind: ossemu.FaultWrongCRC},
		{Operation: "HeadObject", Kind: ossemu.FaultWrongCRC},
		{Operation: "CompleteMultipartUpload", Kind: ossemu.FaultLostReply, Every: 2},
		{Operation: "CompleteMultipartUpload", Kind: ossemu.FaultWrongCRC},
	}); err != nil {
		t.Fatal(err)
	}
	f, at := programtest.WritableMount(t, s, filepath.Join(t.TempDir(), "cache"))
	large := strings.Repeat("0123456789abcdef", 9<<16)
	for _, round := range []string{"1", "2", "3"} {
		want := map[string]string{"a": "a" + round, "b": "b" + round, "c": "c" + round, "large": round + large}
		for name, content := range want {
			programtest.WriteFile(t, filepath.Join(at, name), content)
		}
		programtest.MustRun(t, "flush", at)
		for name, content := range want {
			s.Holds(t, name, content)
		}
	}
	entries, err := os.ReadDir(at)
	if err != nil || len(entries) != 4 {
		t.Errorf("the mount shows %v, %v", entries, err)
	}
	if w := programtest.WritingStatus(t, at); w.ConflictCount != 0 {
		t.Errorf("conflicts: %v", w.Conflicts)
	}
	programtest.MustRun(t, "umount", at)
	if code := f.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}
