package fs

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// testSeed returns the seed of a random test: PAILFS_TEST_SEED, so that a run can be
// repeated, or another one each time.
func testSeed() uint64 {
	if s, err := strconv.ParseUint(os.Getenv("PAILFS_TEST_SEED"), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}

// TestRandomOperationsAsOnALocalDisk does the same random operations on a mount and
// on the local disk, by several workers, and compares every outcome. Each worker
// has a directory that only it changes, so that what it finds does not depend on
// the others; they share the mount, the staging directory and the journal. At the
// end the trees are compared, and after a flush what is in the bucket.
func TestRandomOperationsAsOnALocalDisk(t *testing.T) {
	seed := testSeed()
	for _, mode := range []Choice{On, Off} {
		t.Run("passthrough "+mode.String(), func(t *testing.T) {
			t.Logf("PAILFS_TEST_SEED=%d", seed)
			w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: mode, PassthroughMin: 1}})
			local := localDir(t)
			var workers sync.WaitGroup
			for i := range 3 {
				name := fmt.Sprint("worker", i)
				must(t, os.Mkdir(w.path(name), 0o755))
				must(t, os.Mkdir(filepath.Join(local, name), 0o755))
				workers.Go(func() {
					r := &randomWorker{
						rng: rand.New(rand.NewPCG(seed, uint64(i))), mount: w.path(name), local: filepath.Join(local, name),
					}
					if err := r.run(120 * stressFactor()); err != nil {
						t.Errorf("seed %d, %s: %v", seed, name, err)
					}
				})
			}
			workers.Wait()
			compareTrees(t, w.dir, local)
			w.drain(t)
			compareTrees(t, w.dir, local)
			compareBucket(t, w.Emulator, local)
		})
	}
}

// randomWorker does one worker's operations.
type randomWorker struct {
	rng          *rand.Rand
	mount, local string
	log          []string
}

// result is what an operation gave: an errno, and what was read.
type result struct {
	errno error
	text  string
}

// String returns the result for people.
func (r result) String() string { return fmt.Sprintf("%v %.80q", r.errno, r.text) }

func (r *randomWorker) run(operations int) error {
	for range operations {
		doing, do := r.next()
		r.log = append(r.log, doing)
		mount, local := do(r.mount), do(r.local)
		if mount != local {
			last := r.log[max(0, len(r.log)-12):]
			return fmt.Errorf("%s gave %s, on the local disk %s; the operations before: %q", doing, mount, local, last)
		}
	}
	return nil
}

// name returns a random path: there are few, so that operations meet.
func (r *randomWorker) name() string {
	dirs := []string{"", "", "a", "b", "a/c"}
	return filepath.Join(dirs[r.rng.IntN(len(dirs))], fmt.Sprint("f", r.rng.IntN(5)))
}

func (r *randomWorker) dir() string { return []string{"a", "b", "a/c", "b/d"}[r.rng.IntN(4)] }

// next chooses an operation. It is run once for each root with the same arguments.
func (r *randomWorker) next() (string, func(root string) result) {
	name, other, seed := r.name(), r.name(), r.rng.Uint64()
	size, off := r.rng.IntN(200_000), r.rng.IntN(200_000)
	switch r.rng.IntN(17) {
	case 0, 1:
		return fmt.Sprintf("write %s %d", name, size), func(root string) result {
			return outcomeOf(os.WriteFile(filepath.Join(root, name), random(seed, size), 0o644))
		}
	case 2:
		return fmt.Sprintf("create exclusively %s", name), func(root string) result {
			return outcomeOf(create(filepath.Join(root, name), unix.O_EXCL))
		}
	case 3, 4:
		return fmt.Sprintf("write %d into %s at %d", size, name, off), func(root string) result {
			return withFile(filepath.Join(root, name), os.O_RDWR, func(f *os.File) error {
				_, err := f.WriteAt(random(seed, size), int64(off))
				return err
			})
		}
	case 5:
		return fmt.Sprintf("append %d to %s", size/10, name), func(root string) result {
			return withFile(filepath.Join(root, name), os.O_WRONLY|os.O_APPEND, func(f *os.File) error {
				_, err := f.Write(random(seed, size/10))
				return err
			})
		}
	case 6:
		return fmt.Sprintf("truncate %s to %d", name, size), func(root string) result {
			return outcomeOf(os.Truncate(filepath.Join(root, name), int64(size)))
		}
	case 7, 8:
		return "read " + name, func(root string) result {
			b, err := os.ReadFile(filepath.Join(root, name))
			return result{outcomeOf(err).errno, string(b)}
		}
	case 9, 10:
		return fmt.Sprintf("rename %s to %s", name, other), func(root string) result {
			return outcomeOf(os.Rename(filepath.Join(root, name), filepath.Join(root, other)))
		}
	case 11:
		return "unlink " + name, func(root string) result { return outcomeOf(unix.Unlink(filepath.Join(root, name))) }
	case 12:
		dir := r.dir()
		return "mkdir " + dir, func(root string) result { return outcomeOf(unix.Mkdir(filepath.Join(root, dir), 0o755)) }
	case 13:
		dir := r.dir()
		return "rmdir " + dir, func(root string) result { return outcomeOf(unix.Rmdir(filepath.Join(root, dir))) }
	case 14:
		from, to := r.dir(), r.dir()
		return fmt.Sprintf("rename directory %s to %s", from, to), func(root string) result {
			return outcomeOf(unix.Rename(filepath.Join(root, from), filepath.Join(root, to)))
		}
	case 15:
		dir := r.dir()
		return "list " + dir, func(root string) result {
			names, err := os.ReadDir(filepath.Join(root, dir))
			text := ""
			for _, n := range names {
				text += n.Name() + " "
			}
			return result{outcomeOf(err).errno, text}
		}
	default:
		return "stat " + name, func(root string) result {
			info, err := os.Lstat(filepath.Join(root, name))
			if err != nil {
				return outcomeOf(err)
			}
			return result{nil, fmt.Sprint(info.Size(), info.Mode())}
		}
	}
}

// withFile opens a file, uses it and closes it.
func withFile(path string, flags int, use func(f *os.File) error) result {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return outcomeOf(err)
	}
	err = use(f)
	return outcomeOf(errors.Join(err, f.Close()))
}

// outcomeOf returns the errno of err alone, for its text has a path.
func outcomeOf(err error) result {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return result{errno: errno}
	}
	return result{errno: err}
}

// compareTrees fails where two trees differ.
func compareTrees(t *testing.T, a, b string) {
	t.Helper()
	left, right := treeOf(t, a), treeOf(t, b)
	for path, content := range right {
		if got, ok := left[path]; !ok || got != content {
			t.Errorf("%s is there: %v, with %d bytes, want %d", path, ok, len(got), len(content))
		}
	}
	for path := range left {
		if _, ok := right[path]; !ok {
			t.Errorf("%s should not be there", path)
		}
	}
}

// treeOf returns every path with its content, "/" for a directory.
func treeOf(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := make(map[string]string)
	must(t, filepath.WalkDir(root, func(path string, d iofs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			tree[name] = "/"
			return nil
		}
		b, err := os.ReadFile(path)
		tree[name] = string(b)
		return err
	}))
	return tree
}

// compareBucket fails unless the bucket has the files below root and no others.
func compareBucket(t *testing.T, e *ossemutest.Emulator, root string) {
	t.Helper()
	want := treeOf(t, root)
	var keys []string
	for name, content := range want {
		if content == "/" {
			continue
		}
		keys = append(keys, name)
		if got := e.Get(name); !bytes.Equal(got, []byte(content)) {
			t.Errorf("the bucket has %d bytes at %s, want %d", len(got), name, len(content))
		}
	}
	got := slices.DeleteFunc(e.Keys(""), func(key string) bool { return key[len(key)-1] == '/' })
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("the bucket has %q, want %q", got, keys)
	}
}
