package fs

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// site is a world that is mounted.
type site struct {
	*world
	dir   string // the mount point
	mount *Mounted
	cache *cache.Cache
	reg   *prometheus.Registry
}

// mounted mounts w. The cache has a directory on a real disk and the memory of
// cfg, and everything is taken down, and was in use by nobody, at the end.
func mounted(t testing.TB, w *world, cfg Config, cc cache.Config) *site {
	t.Helper()
	return mountedWithLog(t, w, cfg, cc, testLog(t))
}

func mountedWithLog(t testing.TB, w *world, cfg Config, cc cache.Config, log *slog.Logger) *site {
	t.Helper()
	return mountedTree(t, w, w, cfg, cc, log)
}

// mountedTree mounts tree, the names of which have their content from w.
func mountedTree(t testing.TB, w *world, tree manifest.Tree, cfg Config, cc cache.Config, log *slog.Logger) *site {
	t.Helper()
	base := tempDir(t)
	s := &site{world: w, dir: filepath.Join(base, "mnt"), reg: prometheus.NewRegistry()}
	must(t, os.Mkdir(s.dir, 0o755))
	if cc.Dir == "" {
		cc.Dir = filepath.Join(base, "cache")
		must(t, os.Mkdir(cc.Dir, 0o700))
	}
	if cc.Bucket == "" {
		cc.Bucket = "test"
	}
	if cc.Memory == 0 {
		cc.Memory = 64 << 20
	}
	if cc.MinFreeBytes == 0 {
		cc.MinFreeBytes = 1 << 20
	}
	var err error
	s.cache, err = cache.Open(cc, w, w, s.reg, log)
	must(t, err)
	t.Cleanup(func() { must(t, s.cache.Close()) })
	cfg.Mountpoint = s.dir
	if cfg.Source == "" {
		cfg.Source = "oss://bucket/prefix"
	}
	s.mount, err = Mount(cfg, tree, s.cache, s.reg, log)
	must(t, err)
	t.Cleanup(func() {
		if err := s.mount.Unmount(); err != nil {
			_ = s.mount.Detach()
			t.Errorf("unmount: %v", err)
		}
	})
	return s
}

// path returns the absolute path of a name in the mount.
func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// shrink makes the kernel drop the names it keeps of the mount, which a remount
// does for one file system alone.
func (s *site) shrink(t testing.TB) {
	t.Helper()
	must(t, unix.Mount("", s.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""))
}

// tempDir makes a directory on the disk, not on a tmpfs, which go test removes.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", tempPrefix())
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// tempPrefix begins the names of this process's directories: other runs of these
// tests may go on beside it.
func tempPrefix() string { return fmt.Sprintf("pailfs-fs-test-%d-", os.Getpid()) }

func testLog(t testing.TB) *slog.Logger {
	if os.Getenv("PAILFS_TEST_LOG") == "" {
		return quiet()
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readAll returns the content of a file through read(2).
func readAll(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// dropPages makes the kernel forget what it has of an open file, so that the next
// read asks us.
func dropPages(t testing.TB, f *os.File) {
	t.Helper()
	must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// inode64 returns the inode number of path itself.
func inode64(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ino
}

// eventually waits for something that happens in its own time, such as what the
// kernel tells of in the background. Its limit is for a hang, not a claim.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// same fails where got differs from want, without printing megabytes.
func same(t testing.TB, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d is %#x, want %#x", i, got[i], want[i])
		}
	}
}

// stressFactor multiplies the length of the tests that hunt races.
func stressFactor() int {
	if n, err := strconv.Atoi(os.Getenv("PAILFS_FS_STRESS")); err == nil && n > 0 {
		return n
	}
	return 1
}

// lines collects what is logged.
type lines struct{ mounttest.Output }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns how many lines hold all of the parts.
func (l *lines) count(parts ...string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			n++
		}
	}
	return n
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// writeContent writes the content of o to a file.
func writeContent(t testing.TB, path string, o oss.Object) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	buf := make([]byte, 1<<20)
	for off := int64(0); off < o.Size; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), o.Size-off)]
		content(o, off, p)
		_, err := f.Write(p)
		must(t, err)
	}
	must(t, f.Sync())
	must(t, f.Close())
}
