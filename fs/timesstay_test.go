package fs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/oss"
)

// TestTimesStayWhenAFileIsPublished: what a program was told of when files and directories
// were written and changed stays, to the nanosecond, while they are published, taken by the
// cache, left to the bucket, forgotten by the kernel, and opened for writing again. A new
// mount shows what the bucket has of it.
func TestTimesStayWhenAFileIsPublished(t *testing.T) {
	for _, attrs := range []bool{false, true} {
		for _, mode := range []Choice{On, Off} {
			t.Run(fmt.Sprintf("attributes %t, passthrough %v", attrs, mode), func(t *testing.T) {
				e := startStore(t)
				e.Put("old", []byte("content"))
				e.Put("renamed", []byte("content"))
				config := Config{Attrs: attrs, Passthrough: mode, PassthroughMin: 1}
				base := tempDir(t)
				w := mountWritten(t, e, writtenOptions{config: config, base: base, ttl: 10 * time.Millisecond})
				must(t, os.Mkdir(w.path("dir"), 0o755))
				files := []string{"plain", "dir/below", "moved", "large", "old"}
				for i, name := range files {
					size := 1000
					if name == "large" {
						size = 1 << 20
					}
					must(t, os.WriteFile(w.path(name), random(uint64(i), size), 0o644))
				}
				must(t, os.Symlink("plain", w.path("link")))
				must(t, os.Mkdir(w.path("given"), 0o755))
				must(t, os.WriteFile(w.path("given/file"), nil, 0o644))
				given := time.Unix(1_000_000_000, 123_456_789)
				must(t, os.Chtimes(w.path("given"), given, given))
				// Without attributes the time of what is published already is the object's.
				f, err := os.Create(w.path("set"))
				must(t, err)
				_, err = f.Write(random(3, 1000))
				must(t, err)
				set := time.Unix(1_000_000_000, 987_654_321)
				must(t, os.Chtimes(w.path("set"), set, set))
				must(t, f.Close())
				awaitTick(t)
				must(t, os.Rename(w.path("moved"), w.path("dir/moved")))
				must(t, os.Rename(w.path("renamed"), w.path("of the bucket")))
				if attrs {
					must(t, os.Chmod(w.path("plain"), 0o600))
					must(t, unix.Setxattr(w.path("dir/below"), "user.a", []byte("1"), 0))
				}
				files[2] = "dir/moved"
				files = append(files, "set", "of the bucket")
				told := w.told(t, append([]string{"link", "dir", "given", "."}, files...)...)
				if got := told["given"][0]; !got.Equal(given) {
					t.Errorf("the time that a program gave to a directory is %v, want %v", got, given)
				}
				if got := told["set"][0]; !got.Equal(set) {
					t.Errorf("the time that a program set is %v, want %v", got, set)
				}
				for _, name := range []string{"dir/moved", "set", "of the bucket"} {
					if !told[name][1].After(told[name][0]) {
						t.Errorf("%s was changed at %v, not after it was written at %v", name, told[name][1], told[name][0])
					}
				}
				w.published(t, files...)
				w.stays(t, "published,", told)
				eventually(t, "all files are left to the bucket", func() bool {
					for _, name := range files {
						n := w.mount.fs.inodes.nodes.get(inode64(t, w.path(name)))
						if file := n.file.Load(); file != nil && !file.Forgotten() {
							return false
						}
					}
					return true
				})
				w.stays(t, "left to the bucket,", told)
				w.forgets(t)
				w.stays(t, "forgotten by the kernel,", told)
				for _, name := range files {
					f, err := os.OpenFile(w.path(name), os.O_RDWR, 0)
					must(t, err)
					w.stays(t, "open for writing,", told)
					must(t, f.Close())
				}
				w.stays(t, "opened for writing and closed,", told)
				w.stop()
				w = mountWritten(t, e, writtenOptions{config: config})
				w.showsTheBucketsTimes(t, attrs, told)
			})
		}
	}
}

// showsTheBucketsTimes fails unless a new mount shows what is promised of the times that one
// before has told: those of files, if they are kept, to the nanosecond, and else what the
// bucket has. No object has a time of change.
func (w *written) showsTheBucketsTimes(t *testing.T, attrs bool, told map[string][2]time.Time) {
	t.Helper()
	bucket := writtenClient(t, w.Emulator, quiet()).As(oss.Demand)
	now := w.told(t, slices.Collect(maps.Keys(told))...)
	for name, times := range now {
		want := told[name][0]
		switch {
		case name == ".", !attrs && (name == "dir" || name == "given"):
			want = w.mount.fs.inodes.mounted
		case name == "dir":
			info, err := bucket.Head(t.Context(), "dir/")
			must(t, err)
			want = metaTime(t, info.Meta["pailfs-mtime"])
			if !want.Before(told[name][0]) {
				t.Errorf("the marker of dir has the time %v, and names came until %v", want, told[name][0])
			}
		case !attrs:
			info, err := bucket.Head(t.Context(), name)
			must(t, err)
			want = info.ModTime
			times[0] = times[0].Truncate(time.Second) // a listing may say more than a header can
		}
		if !times[0].Equal(want) {
			t.Errorf("a new mount says that %s was written at %v, want %v", name, times[0], want)
		}
		if got := now[name]; !got[1].Equal(got[0]) {
			t.Errorf("a new mount says that %s was changed at %v, want %v as it was written", name, got[1], got[0])
		}
	}
}

// metaTime is a time of the metadata of an object.
func metaTime(t *testing.T, text string) time.Time {
	t.Helper()
	var sec, nsec int64
	if _, err := fmt.Sscanf(text, "%d.%d", &sec, &nsec); err != nil {
		t.Fatalf("the time %q: %v", text, err)
	}
	return time.Unix(sec, nsec)
}

// TestNanosecondsAreBelievedOnlyWithTheirSeconds: another client that sets the time of an
// object does so in seconds.
func TestNanosecondsAreBelievedOnlyWithTheirSeconds(t *testing.T) {
	e := startStore(t)
	w := mountWritten(t, e, writtenOptions{config: Config{Attrs: true}, ttl: time.Millisecond})
	must(t, os.WriteFile(w.path("file"), []byte("content"), 0o644))
	at := time.Unix(1_000_000_000, 5)
	must(t, os.Chtimes(w.path("file"), at, at))
	w.drain(t)
	bucket := writtenClient(t, e, quiet()).As(oss.Demand)
	info, err := bucket.Head(t.Context(), "file")
	must(t, err)
	meta := info.Meta
	if meta["mtime"] != "1000000000" || meta["pailfs-mtime"] != "1000000000.000000005" {
		t.Errorf("the metadata is %v", meta)
	}
	meta["mtime"] = "1000000007"
	_, err = bucket.Put(t.Context(), "other", strings.NewReader("content"), oss.PutOptions{Meta: meta})
	must(t, err)
	if got, want := w.told(t, "other")["other"][0], time.Unix(1_000_000_007, 0); !got.Equal(want) {
		t.Errorf("the time is %v, want %v", got, want)
	}
}

// TestTimesOfDirectoriesAreRememberedWhenTheKernelForgetsThem, also where the directory, or
// one above it, was renamed meanwhile.
func TestTimesOfDirectoriesAreRememberedWhenTheKernelForgetsThem(t *testing.T) {
	e := startStore(t)
	e.Put("top/dir/file", []byte("content"))
	w := mountWritten(t, e, writtenOptions{})
	mounted := w.told(t, "top/dir")["top/dir"]
	awaitTick(t)
	must(t, os.WriteFile(w.path("top/dir/new"), nil, 0o644))
	told := w.told(t, "top/dir", "top", ".")
	if !told["top/dir"][0].After(mounted[0]) {
		t.Errorf("the time of the directory is %v, not after %v", told["top/dir"][0], mounted[0])
	}
	w.forgets(t)
	w.stays(t, "forgotten by the kernel,", told)
	w.forgets(t)
	must(t, os.Rename(w.path("top"), w.path("renamed")))
	told["renamed/dir"] = told["top/dir"]
	delete(told, "top/dir")
	delete(told, "top")
	delete(told, ".")
	w.stays(t, "renamed with the directory above,", told)
}

// TestAChangeElsewhereMovesTheTimeOfADirectory when a listing shows it, and what is
// published from here does not.
func TestAChangeElsewhereMovesTheTimeOfADirectory(t *testing.T) {
	e := startStore(t)
	e.Put("dir/one", []byte("content"))
	w := mountWritten(t, e, writtenOptions{ttl: 10 * time.Millisecond})
	list := func() int {
		entries, err := os.ReadDir(w.path("dir"))
		must(t, err)
		return len(entries)
	}
	must(t, os.WriteFile(w.path("dir/ours"), []byte("content"), 0o644))
	list()
	told := w.told(t, "dir")
	w.published(t, "dir/ours")
	for range 3 {
		time.Sleep(20 * time.Millisecond) // listings expire
		list()
	}
	w.stays(t, "published from here,", told)
	for what, change := range map[string]func(){
		"came": func() { e.Put("dir/two", []byte("content")) },
		"left": func() { e.Delete("dir/one") },
	} {
		told, before := w.told(t, "dir"), list()
		change()
		eventually(t, "a name "+what, func() bool { return list() != before })
		eventually(t, "the times move when a name "+what, func() bool {
			list() // a listing that changed under its reader is not looked at
			now := w.told(t, "dir")["dir"]
			return now[0].After(told["dir"][0]) && now[1].After(told["dir"][1])
		})
	}
}

// TestNoOldTimeOfADirectoryStaysInTheKernel: while names come, others ask for the times of
// the directory, and answers are on their way that were given before a name came.
func TestNoOldTimeOfADirectoryStaysInTheKernel(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{})
	must(t, os.Mkdir(w.path("dir"), 0o755))
	var askers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		askers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					var st syscall.Stat_t
					_ = syscall.Stat(w.path("dir"), &st)
				}
			}
		})
	}
	dir := w.mount.fs.inodes.directory("dir")
	for i := range 100 * stressFactor() {
		must(t, unix.Mknod(w.path(fmt.Sprintf("dir/%d", i)), unix.S_IFREG|0o644, 0))
		if got, want := w.told(t, "dir")["dir"][0].UnixNano(), dir.told.Load().Mtime; got != want {
			t.Fatalf("after %d names the time is %d, want %d", i+1, got, want)
		}
	}
	close(done)
	askers.Wait()
}

// TestTimesThatAreRememberedAreBounded, and those that were put last stay.
func TestTimesThatAreRememberedAreBounded(t *testing.T) {
	var p pathTimes
	for i := range 3 * forgottenMost {
		p.put(filepath.Join("a", fmt.Sprint(i)), writeback.Times{Mtime: int64(i)})
	}
	if n := len(p.young) + len(p.old); n > forgottenMost {
		t.Errorf("%d are remembered, want %d at most", n, forgottenMost)
	}
	for _, i := range []int{3*forgottenMost - 1, 3*forgottenMost - forgottenMost/2} {
		if got, ok := p.take(filepath.Join("a", fmt.Sprint(i))); !ok || got.Mtime != int64(i) {
			t.Errorf("%d is remembered as %v, %t", i, got, ok)
		}
	}
	p.put("b/c", writeback.Times{Mtime: 1})
	p.rename("b", "d")
	if got, ok := p.take("d/c"); !ok || got.Mtime != 1 {
		t.Errorf("what was renamed is remembered as %v, %t", got, ok)
	}
}
