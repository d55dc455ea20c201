package main

import (
	"errors"
	"fmt"
	"log/slog"
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

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
)

// publisher writes manifests of a scene's bucket.
type publisher struct {
	*scene
	bucket oss.Bucket
	number uint64
}

func newPublisher(s *scene) *publisher {
	s.t.Helper()
	log := slog.New(slog.DiscardHandler)
	credentials, err := oss.OpenCredentials(oss.CredentialsConfig{
		Kind: oss.CredentialsStatic, AccessKeyID: testKeyID, AccessKeySecret: testSecret,
	}, log)
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: s.endpoint, Bucket: testBucket, Credentials: credentials}, nil, nil, log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := errors.Join(client.Close(), credentials.Close()); err != nil {
			s.t.Error(err)
		}
	})
	return &publisher{scene: s, bucket: client.As(oss.Upload)}
}

// build writes the manifest of what is in the bucket now to a file. change may
// add to a record.
func (p *publisher) build(change func(*manifest.Record)) string {
	p.t.Helper()
	p.number++
	b, err := manifest.NewBuilder(manifest.BuilderConfig{SpillDir: p.t.TempDir(), MemoryBytes: 8 << 20})
	if err != nil {
		p.t.Fatal(err)
	}
	keys, err := p.Keys(testBucket, "")
	if err != nil {
		p.t.Fatal(err)
	}
	began := time.Now()
	for _, key := range keys {
		if strings.HasPrefix(key, ".pailfs/") {
			continue
		}
		info, err := p.bucket.Head(p.t.Context(), key)
		if err != nil {
			p.t.Fatal(err)
		}
		r := manifest.Record{Key: key, ETag: info.ETag, Size: info.Size, ModTime: info.ModTime}
		if change != nil {
			change(&r)
		}
		if err := b.Add(r); err != nil {
			p.t.Fatal(err)
		}
	}
	path := filepath.Join(p.t.TempDir(), "manifest")
	_, err = b.Finish(p.t.Context(), path, manifest.Header{Generation: p.number, Began: began, Ended: time.Now()})
	if err := errors.Join(err, b.Close()); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// publish publishes the file that build wrote last.
func (p *publisher) publish(path string) {
	p.t.Helper()
	now := time.Now()
	if _, err := publish.Publish(p.t.Context(), p.bucket, "", path, publish.Facts{Number: p.number, Began: now, Ended: now}, publish.Options{}); err != nil {
		p.t.Fatal(err)
	}
}

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
func (s *scene) listings() int64 {
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
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs()...)
	s.reads()
	if m := statusOf(t, s.at).Manifest; m.Asked != "auto" || m.Mode != "off" || m.Reason != "no manifest is published" {
		t.Errorf("status %+v", m)
	}
	for _, mode := range []string{"follow", "frozen"} {
		o := run(t, environ(), "mount", "oss://"+testBucket, newMountPoint(t), "--endpoint="+s.endpoint, "--manifest="+mode)
		if o.code != 1 || !strings.Contains(o.stderr, "none is published") || !strings.Contains(o.stderr, "pailfs manifest build oss://"+testBucket) {
			t.Errorf("%s: code %d, %s", mode, o.code, o.stderr)
		}
	}
}

func TestFrozenMountMakesNoRequestForNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for i := range 30 {
		s.put(t, fmt.Sprintf("dir/f%02d", i), []byte("x"))
	}
	p := newPublisher(s)
	p.publish(p.build(func(r *manifest.Record) {
		if r.Key == "dir/f07" {
			r.Attr = &manifest.Attr{
				Known: manifest.AttrMode | manifest.AttrUID | manifest.AttrGID | manifest.AttrMTime,
				Mode:  0o751, UID: 1234, GID: 2345, MTime: time.Unix(1_600_000_000, 5),
			}
		}
	}))
	startForeground(t, environ(), s.at, s.mountArgs("--manifest=frozen", "--http=0")...)
	s.put(t, "dir/later", nil)
	before := s.listings()
	for range 3 {
		names, err := os.ReadDir(filepath.Join(s.at, "dir"))
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
		if there(t, s.at, name) {
			t.Errorf("%s is there", name)
		}
	}
	if n := s.listings() - before; n != 0 {
		t.Errorf("%d requests for names", n)
	}
	s.reads()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(s.at, "dir/f07"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != unix.S_IFREG|0o751 || st.Uid != 1234 || st.Gid != 2345 || st.Mtim != (unix.Timespec{Sec: 1_600_000_000, Nsec: 5}) {
		t.Errorf("mode %o, owner %d:%d, mtime %v", st.Mode, st.Uid, st.Gid, st.Mtim)
	}
	r := statusOf(t, s.at)
	if m := r.Manifest; m.Mode != "frozen" || m.Generation != 1 || m.Objects != 31 || m.Age < 0 {
		t.Errorf("status %+v", m)
	}
	if !r.FileSystem.NoOpen.On || r.FileSystem.Mode != "immutable" {
		t.Errorf("no-open %+v, mode %s", r.FileSystem.NoOpen, r.FileSystem.Mode)
	}
	if text := mustRun(t, "status", s.at).stdout; !strings.Contains(text, "manifest frozen (by configuration)") || !strings.Contains(text, "generation 1: 31 objects") {
		t.Errorf("status says %s", text)
	}
	if err := os.WriteFile(filepath.Join(s.at, "dir/new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing: %v, want EROFS", err)
	}
}

func TestAManifestFileIsShown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	path := newPublisher(s).build(nil)
	s.put(t, "later", nil)
	startForeground(t, environ(), s.at, s.mountArgs("--manifest="+path)...)
	s.reads()
	if there(t, s.at, "later") {
		t.Error("a name is there that the file does not have")
	}
	if m := statusOf(t, s.at).Manifest; m.Mode != "frozen" || m.File != path || m.Objects != 1 {
		t.Errorf("status %+v", m)
	}
}

func TestBadManifestsAreRefusedUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := newPublisher(s)
	path := p.build(nil)
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
		o := run(t, environ(), s.mountArgs("--manifest="+bad)...)
		if o.code != 1 || !strings.Contains(o.stderr, bad) || !strings.Contains(o.stderr, "--manifest-fallback") || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%s: code %d, %q", name, o.code, o.stderr)
		}
	}
	bad := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(bad, whole[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	p.publish(bad)
	if o := run(t, environ(), s.mountArgs()...); o.code != 1 || !strings.Contains(o.stderr, "--manifest-fallback") {
		t.Errorf("published: code %d, %q", o.code, o.stderr)
	}
	startForeground(t, environ(), s.at, s.mountArgs("--manifest-fallback")...)
	s.reads()
	if m := statusOf(t, s.at).Manifest; m.Mode != "off" || !strings.Contains(m.Reason, "cannot be used") {
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
		s := newScene(t)
		o := run(t, environ(), s.mountArgs(c.args...)...)
		if o.code == 0 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: code %d, %s", c.args, o.code, o.stderr)
		}
	}
}

// TestTwoMountsFollowWhatAThirdPublishes changes the bucket at random, publishes,
// and kills one of the mounts now and then: what they show is what was published
// last, whoever has which names in its caches; an open reader keeps its bytes, and
// a listing in progress shows each name once.
func TestTwoMountsFollowWhatAThirdPublishes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := newPublisher(s)
	want := map[string]string{"dir/file": string(content)}
	p.publish(p.build(nil))
	rng := rand.New(rand.NewPCG(11, 12))
	type mount struct {
		at    string
		start func() *foreground
		f     *foreground
	}
	var mounts []*mount
	for i := range 2 {
		at, cache := newMountPoint(t), filepath.Join(t.TempDir(), "cache")
		args := []string{
			"mount", "oss://" + testBucket, at, "--endpoint=" + s.endpoint, "--memory=64MiB",
			"--manifest=follow", "--manifest-poll=100ms", "--read-only",
		}
		if i == 0 {
			args = append(args, "--cache-dir="+cache)
		}
		m := &mount{at: at, start: func() *foreground { return startForeground(t, environ(), at, args...) }}
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
				if err := s.Delete(testBucket, key); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want[key] = fmt.Sprintf("round %d of %s", round, key)
			s.put(t, key, []byte(want[key]))
		}
		if rng.IntN(2) == 0 {
			want["dir/file"] = strings.Repeat(fmt.Sprintf("version of round %d. ", round), 5000)
			s.put(t, "dir/file", []byte(want["dir/file"]))
		}
		killed := mounts[0]
		kill := rng.IntN(2) == 0
		path := p.build(nil)
		if kill && rng.IntN(2) == 0 { // while it fetches, or just before
			p.publish(path)
			killDaemons(t, killed.at)
		} else {
			if kill {
				killDaemons(t, killed.at)
			}
			p.publish(path)
		}
		if kill {
			killed.f = killed.start()
		}
		for _, m := range mounts {
			eventually(t, "generation "+strconv.FormatUint(p.number, 10)+" is shown", func() bool {
				return statusOf(t, m.at).Manifest.Generation == p.number
			})
			eventually(t, "the names are those of the generation", func() bool { return cmp.Equal(want, contents(t, m.at)) })
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
		mustRun(t, "umount", m.at)
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
			s := newScene(t)
			p := newPublisher(s)
			p.publish(p.build(nil))
			startForeground(t, environ(), s.at, s.mountArgs("--manifest="+mode)...)
			replaced := []byte(strings.Repeat("another version", 100))
			s.put(t, "dir/file", replaced)
			path := filepath.Join(s.at, "dir/file")
			if _, err := os.ReadFile(path); !errors.Is(err, unix.ESTALE) {
				t.Errorf("the first read: %v, want ESTALE", err)
			}
			if mode == "frozen" {
				if _, err := os.ReadFile(path); !errors.Is(err, unix.ESTALE) {
					t.Errorf("a later read: %v, want ESTALE", err)
				}
				return
			}
			eventually(t, "the new version is read", func() bool {
				got, err := os.ReadFile(path)
				return err == nil && string(got) == string(replaced)
			})
			if m := statusOf(t, s.at).Manifest; m.Follow == nil || m.Follow.Asked != 1 {
				t.Errorf("status %+v", m)
			}
		})
	}
}

func TestNoOpenIsChosenByTheFirstNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put(t, "small/.pailfs/large", make([]byte, 9<<20))
	s.put(t, "small/file", []byte("x"))
	s.put(t, "large/", nil)
	s.put(t, "large/file", make([]byte, 9<<20))
	for prefix, want := range map[string]bool{"small": true, "large": false} {
		args := s.mountArgs("--read-only", "--immutable")
		args[1] += "/" + prefix
		f := startForeground(t, environ(), s.at, args...)
		if got := statusOf(t, s.at).FileSystem.NoOpen; got.On != want {
			t.Errorf("%s: no-open %+v, want %t", prefix, got, want)
		}
		mustRun(t, "umount", s.at)
		f.code(t)
	}
}
