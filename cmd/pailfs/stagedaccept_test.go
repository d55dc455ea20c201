package main

import (
	encoding "encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

// writeSynced writes a file, brings it to the disk and closes it, which is one commit: the clock
// ticks before the fsync.
func writeSynced(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// loseOnDisk writes to the journal of a daemon that is dead that the disk did not take the first
// commit of a staged file, as the daemon does where an fsync fails; see fs/writeback/JOURNAL.md.
func loseOnDisk(t *testing.T, cacheDir, stagedName string) {
	t.Helper()
	id, err := strconv.ParseUint(stagedName, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	const suspect, generation, aside = 8, 1, 0
	body := encoding.AppendUvarint([]byte{suspect}, id)
	body = append(body, generation, aside)
	record := encoding.LittleEndian.AppendUint32(nil, uint32(len(body)))
	record = encoding.LittleEndian.AppendUint32(record, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	f, err := os.OpenFile(filepath.Join(cacheDir, wire.StagingName, "journal.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(record, body...)); err != nil {
		t.Fatal(err)
	}
}

// lostFiles mounts where the disk has lost what two files have.
func lostFiles(t *testing.T, content string) (s *programtest.Store, at string) {
	t.Helper()
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := programtest.WritableMount(t, s, cacheDir)
	s.RefuseUploads(t, true)
	for _, name := range []string{"a", "removed"} {
		writeSynced(t, filepath.Join(at, name), content)
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.Done
	programtest.MustRun(t, "umount", at)
	for _, p := range stagedIn(t, cacheDir).Pending {
		loseOnDisk(t, cacheDir, p.File)
	}
	if out := programtest.MustRun(t, "staged", "ls", "--cache-dir", cacheDir).Stdout; strings.Count(out, "pailfs staged accept") < 2 {
		t.Errorf("ls does not say what can be done: %s", out)
	}
	s.RefuseUploads(t, false)
	_, at = programtest.WritableMount(t, s, cacheDir)
	return s, at
}

// TestAcceptTakesBackALostFile when its user says so, and lets go of one that was removed.
func TestAcceptTakesBackALostFile(t *testing.T) {
	content := strings.Repeat("content of a file whose fsync failed\n", 10_000)
	s, at := lostFiles(t, content)
	path := filepath.Join(at, "a")
	lost := func(want string) {
		t.Helper()
		if got := strings.Join(programtest.WritingStatus(t, at).Suspects, " "); got != want {
			t.Errorf("status names %q as lost, want %q", got, want)
		}
	}
	refused := func(code int, why string, args ...string) {
		t.Helper()
		o := programtest.Run(t, programtest.Environ(), append([]string{"staged", "accept"}, args...)...)
		if o.Code != code || !strings.Contains(o.Stderr, why) {
			t.Errorf("accept %q: exit code %d: %s, want %d and %q", args, o.Code, o.Stderr, code, why)
		}
	}
	lost("a removed")
	refused(command.Refused, "--yes", path)
	refused(command.Refused, "the mount itself", "--yes", at)
	refused(command.Failed, "lost nothing", "--yes", filepath.Join(at, "no such directory", "no such file"))
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	refused(command.Failed, "close it", "--yes", path)
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	lost("a removed")
	programtest.Eventually(t, "the daemon has seen that the reader is gone", func() bool {
		o := programtest.Run(t, programtest.Environ(), "staged", "accept", "--yes", path)
		return o.Code == command.OK && strings.Contains(o.Stdout, strconv.Itoa(len(content))+" bytes")
	})
	lost("removed")
	removed := filepath.Join(at, "removed")
	if err := os.Remove(removed); err != nil {
		t.Fatal(err)
	}
	lost("removed")
	if o := programtest.MustRun(t, "staged", "accept", "--yes", removed); !strings.Contains(o.Stdout, "no name") {
		t.Errorf("accept of a removed file says %s", o.Stdout)
	}
	lost("")
	programtest.MustRun(t, "flush", at)
	s.Holds(t, "a", content)
	if got, err := os.ReadFile(path); string(got) != content || err != nil {
		t.Errorf("the mount shows %d bytes, %v", len(got), err)
	}
	programtest.MustRun(t, "umount", at)
}
