package mounting

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/manifest"
)

// there reports whether a name exists in a mount.
func there(t *testing.T, at, name string) bool {
	t.Helper()
	var st unix.Stat_t
	err := unix.Lstat(filepath.Join(at, name), &st)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	return err == nil
}

// listings are the requests that the emulator has answered for names.
func listings(s *programtest.Scene) int64 {
	n := int64(0)
	for name, o := range s.Stats().Operations {
		if strings.HasPrefix(name, "List") || name == "HeadObject" || name == "GetObjectMeta" {
			n += o.Requests
		}
	}
	return n
}

func TestWithoutAManifestNamesAreListed(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	s.Reads()
	if m := programtest.StatusOf(t, s.At).Manifest; m.Asked != "auto" || m.Mode != "off" || m.Reason != "no manifest is published" {
		t.Errorf("status %+v", m)
	}
	for _, mode := range []string{"follow", "frozen"} {
		o := programtest.Run(t, programtest.Environ(), "mount", "oss://"+programtest.TestBucket, programtest.NewMountPoint(t), "--endpoint="+s.Endpoint, "--manifest="+mode)
		if o.Code != 1 || !strings.Contains(o.Stderr, "none is published") || !strings.Contains(o.Stderr, "pailfs manifest build oss://"+programtest.TestBucket) {
			t.Errorf("%s: code %d, %s", mode, o.Code, o.Stderr)
		}
	}
}

func TestFrozenMountMakesNoRequestForNames(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	for i := range 30 {
		s.Put(t, fmt.Sprintf("dir/f%02d", i), []byte("x"))
	}
	p := programtest.NewPublisher(s)
	p.Publish(p.Build(func(r *manifest.Record) {
		if r.Key == "dir/f07" {
			r.Attr = &manifest.Attr{
				Known: manifest.AttrMode | manifest.AttrUID | manifest.AttrGID | manifest.AttrMTime,
				Mode:  0o751, UID: 1234, GID: 2345, MTime: time.Unix(1_600_000_000, 5),
			}
		}
	}))
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--manifest=frozen", "--http=0")...)
	s.Put(t, "dir/later", nil)
	before := listings(s)
	for range 3 {
		names, err := os.ReadDir(filepath.Join(s.At, "dir"))
		if err != nil || len(names) != 31 {
			t.Fatalf("%d names, %v", len(names), err)
		}
		for _, e := range names {
			if _, err := e.Info(); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range []string{"dir/later", "dir/absent", "absent/absent", ".pailfs"} {
		if there(t, s.At, name) {
			t.Errorf("%s is there", name)
		}
	}
	if n := listings(s) - before; n != 0 {
		t.Errorf("%d requests for names", n)
	}
	s.Reads()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(s.At, "dir/f07"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != unix.S_IFREG|0o751 || st.Uid != 1234 || st.Gid != 2345 || st.Mtim != (unix.Timespec{Sec: 1_600_000_000, Nsec: 5}) {
		t.Errorf("mode %o, owner %d:%d, mtime %v", st.Mode, st.Uid, st.Gid, st.Mtim)
	}
	r := programtest.StatusOf(t, s.At)
	if m := r.Manifest; m.Mode != "frozen" || m.Generation != 1 || m.Objects != 31 || m.Age < 0 {
		t.Errorf("status %+v", m)
	}
	if !r.FileSystem.NoOpen.On || r.FileSystem.Mode != "immutable" {
		t.Errorf("no-open %+v, mode %s", r.FileSystem.NoOpen, r.FileSystem.Mode)
	}
	if text := programtest.MustRun(t, "status", s.At).Stdout; !strings.Contains(text, "manifest frozen (by configuration)") || !strings.Contains(text, "generation 1: 31 objects") {
		t.Errorf("status says %s", text)
	}
	if err := os.WriteFile(filepath.Join(s.At, "dir/new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing: %v, want EROFS", err)
	}
}

func TestAManifestFileIsShown(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	path := programtest.NewPublisher(s).Build(nil)
	s.Put(t, "later", nil)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--manifest="+path)...)
	s.Reads()
	if there(t, s.At, "later") {
		t.Error("a name is there that the file does not have")
	}
	if m := programtest.StatusOf(t, s.At).Manifest; m.Mode != "frozen" || m.File != path || m.Objects != 1 {
		t.Errorf("status %+v", m)
	}
}

func TestBadManifestsAreRefusedUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	p := programtest.NewPublisher(s)
	path := p.Build(nil)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := slices.Clone(whole)
	newer[8] = 99
	for name, text := range map[string][]byte{"cut": whole[:len(whole)/2], "empty": nil, "newer": newer, "foreign": []byte(strings.Repeat("not a manifest ", 100))} {
		bad := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(bad, text, 0o600); err != nil {
			t.Fatal(err)
		}
		o := programtest.Run(t, programtest.Environ(), s.MountArgs("--manifest="+bad)...)
		if o.Code != 1 || !strings.Contains(o.Stderr, bad) || !strings.Contains(o.Stderr, "--manifest-fallback") || strings.Count(o.Stderr, "\n") != 1 {
			t.Errorf("%s: code %d, %q", name, o.Code, o.Stderr)
		}
	}
	bad := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(bad, whole[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	p.Publish(bad)
	if o := programtest.Run(t, programtest.Environ(), s.MountArgs()...); o.Code != 1 || !strings.Contains(o.Stderr, "--manifest-fallback") {
		t.Errorf("published: code %d, %q", o.Code, o.Stderr)
	}
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--manifest-fallback")...)
	s.Reads()
	if m := programtest.StatusOf(t, s.At).Manifest; m.Mode != "off" || !strings.Contains(m.Reason, "cannot be used") {
		t.Errorf("status %+v", m)
	}
}

func TestManifestSettingsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--manifest=frozn"}, `"frozn" is neither auto, follow, frozen or off nor the whole path of a file`},
		{[]string{"--manifest=follow", "--read-only", "--immutable"}, "use frozen"},
		{[]string{"--manifest-poll=1ms"}, "too often"},
		{[]string{"--manifest=/nonexistent/manifest"}, "does not exist"},
	} {
		s := programtest.NewScene(t)
		o := programtest.Run(t, programtest.Environ(), s.MountArgs(c.args...)...)
		if o.Code == 0 || !strings.Contains(o.Stderr, c.want) {
			t.Errorf("%q: code %d, %s", c.args, o.Code, o.Stderr)
		}
	}
}

// TestTwoMountsFollowWhatAThirdPublishes changes the bucket at random, publishes,
// and kills one of the mounts now and then: what they show is what was published
// last, whoever has which names in its caches; an open reader keeps its bytes, and
// a listing in progress shows each name once.
func TestTwoMountsFollowWhatAThirdPublishes(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	p := programtest.NewPublisher(s)
	want := map[string]string{"dir/file": string(programtest.Content)}
	p.Publish(p.Build(nil))
	rng := rand.New(rand.NewPCG(11, 12))
	type mount struct {
		at    string
		start func() *programtest.Foreground
		f     *programtest.Foreground
	}
	var mounts []*mount
	for i := range 2 {
		at, cache := programtest.NewMountPoint(t), filepath.Join(t.TempDir(), "cache")
		args := []string{
			"mount", "oss://" + programtest.TestBucket, at, "--endpoint=" + s.Endpoint, "--memory=64MiB",
			"--manifest=follow", "--manifest-poll=100ms", "--read-only",
		}
		if i == 0 {
			args = append(args, "--cache-dir="+cache)
		}
		m := &mount{at: at, start: func() *programtest.Foreground {
			return programtest.StartForeground(t, programtest.Environ(), at, args...)
		}}
		m.f = m.start()
		mounts = append(mounts, m)
	}
	for round := range 8 {
		// Both mounts get to know names, present and absent, in the state before.
		for _, m := range mounts {
			for i := range 20 {
				there(t, m.at, "dir/f"+strconv.Itoa(i))
			}
		}
		opened, err := os.Open(filepath.Join(mounts[1].at, "dir/file"))
		if err != nil {
			t.Fatal(err)
		}
		before := want["dir/file"]
		got := make([]byte, len(before))
		if _, err := opened.ReadAt(got, 0); err != nil || string(got) != before {
			t.Fatalf("round %d: read other bytes, or %v", round, err)
		}
		listing, err := unix.Open(filepath.Join(mounts[1].at, "dir"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // not for the daemons that are started
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		countNames(t, listing, seen, 256)

		for range 1 + rng.IntN(8) {
			key := "dir/f" + strconv.Itoa(rng.IntN(20))
			if rng.IntN(3) == 0 {
				delete(want, key)
				if err := s.Delete(programtest.TestBucket, key); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want[key] = fmt.Sprintf("round %d of %s", round, key)
			s.Put(t, key, []byte(want[key]))
		}
		if rng.IntN(2) == 0 {
			want["dir/file"] = strings.Repeat(fmt.Sprintf("version of round %d. ", round), 5000)
			s.Put(t, "dir/file", []byte(want["dir/file"]))
		}
		killed := mounts[0]
		kill := rng.IntN(2) == 0
		path := p.Build(nil)
		if kill && rng.IntN(2) == 0 { // while it fetches, or just before
			p.Publish(path)
			programtest.KillDaemons(t, killed.at)
		} else {
			if kill {
				programtest.KillDaemons(t, killed.at)
			}
			p.Publish(path)
		}
		if kill {
			killed.f = killed.start()
		}
		for _, m := range mounts {
			programtest.Eventually(t, "generation "+strconv.FormatUint(p.Number, 10)+" is shown", func() bool {
				return programtest.StatusOf(t, m.at).Manifest.Generation == p.Number
			})
			programtest.Eventually(t, "the names are those of the generation", func() bool { return cmp.Equal(want, contents(t, m.at)) })
		}
		for n := 1; n > 0; {
			n = countNames(t, listing, seen, 256)
		}
		for name, n := range seen {
			if n != 1 {
				t.Errorf("round %d: a listing across the swap shows %s %d times", round, name, n)
			}
		}
		if seen["file"] != 1 {
			t.Errorf("round %d: a listing across the swap lacks a name that stayed", round)
		}
		// What was evicted of a version that is gone is ESTALE, never other bytes.
		clear(got)
		if _, err := opened.ReadAt(got, 0); !errors.Is(err, unix.ESTALE) && (err != nil || string(got) != before) {
			t.Errorf("round %d: an open reader got other bytes, or %v", round, err)
		}
		if err := errors.Join(opened.Close(), unix.Close(listing)); err != nil {
			t.Error(err)
		}
	}
	for _, m := range mounts {
		programtest.MustRun(t, "umount", m.at)
	}
}

// countNames reads one piece of an open directory and counts its names.
func countNames(t *testing.T, fd int, seen map[string]int, size int) int {
	t.Helper()
	buf := make([]byte, size)
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	_, _, found := unix.ParseDirent(buf[:n], -1, nil)
	for _, name := range found {
		seen[name]++
	}
	return n
}

// contents returns every file under a mount with what is in it. A file that is
// gone when it is opened is left out: names change while this runs.
func contents(t *testing.T, at string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range []string{"", "dir"} {
		entries, err := os.ReadDir(filepath.Join(at, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			text, err := os.ReadFile(filepath.Join(at, dir, e.Name()))
			if err == nil {
				files[filepath.Join(dir, e.Name())] = string(text)
			}
		}
	}
	return maps.Clone(files)
}

// TestAFollowedManifestThatIsWrongGivesTheNewObjectOrESTALE replaces an object
// behind the manifest's back.
func TestAFollowedManifestThatIsWrongGivesTheNewObjectOrESTALE(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"follow", "frozen"} {
		t.Run(mode, func(t *testing.T) {
			s := programtest.NewScene(t)
			p := programtest.NewPublisher(s)
			p.Publish(p.Build(nil))
			programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--manifest="+mode)...)
			replaced := []byte(strings.Repeat("another version", 100))
			s.Put(t, "dir/file", replaced)
			path := filepath.Join(s.At, "dir/file")
			if _, err := os.ReadFile(path); !errors.Is(err, unix.ESTALE) {
				t.Errorf("the first read: %v, want ESTALE", err)
			}
			if mode == "frozen" {
				if _, err := os.ReadFile(path); !errors.Is(err, unix.ESTALE) {
					t.Errorf("a later read: %v, want ESTALE", err)
				}
				return
			}
			programtest.Eventually(t, "the new version is read", func() bool {
				got, err := os.ReadFile(path)
				return err == nil && string(got) == string(replaced)
			})
			if m := programtest.StatusOf(t, s.At).Manifest; m.Follow == nil || m.Follow.Asked != 1 {
				t.Errorf("status %+v", m)
			}
		})
	}
}

func TestNoOpenIsChosenByTheFirstNames(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	s.Put(t, "small/.pailfs/large", make([]byte, 9<<20))
	s.Put(t, "small/file", []byte("x"))
	s.Put(t, "large/", nil)
	s.Put(t, "large/file", make([]byte, 9<<20))
	for prefix, want := range map[string]bool{"small": true, "large": false} {
		args := s.MountArgs("--read-only", "--immutable")
		args[1] += "/" + prefix
		f := programtest.StartForeground(t, programtest.Environ(), s.At, args...)
		if got := programtest.StatusOf(t, s.At).FileSystem.NoOpen; got.On != want {
			t.Errorf("%s: no-open %+v, want %t", prefix, got, want)
		}
		programtest.MustRun(t, "umount", s.At)
		f.Code(t)
	}
}
