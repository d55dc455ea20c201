package conformance

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const s3fsBucket = "s3fs-bucket"

// s3fs is a running mount.
type s3fs struct {
	dir   string
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan error
	gone  bool
}

// mountS3fs mounts the bucket until the test ends.
func mountS3fs(t *testing.T, addr string, options ...string) *s3fs {
	t.Helper()
	work := t.TempDir()
	passwords := filepath.Join(work, "passwd")
	if err := os.WriteFile(passwords, []byte(keyID+":"+keySecret), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &s3fs{dir: filepath.Join(work, "mnt"), ended: make(chan error, 1)}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all := append([]string{
		"url=http://" + addr, "use_path_request_style", "passwd_file=" + passwords, "endpoint=" + region,
		"multipart_size=10", "retries=1", "use_cache=" + filepath.Join(work, "cache"), "tmpdir=" + work, "enable_noobj_cache",
	}, options...)
	// In the foreground, so that the process is ours to end.
	m.cmd = exec.Command("s3fs", s3fsBucket, m.dir, "-f", "-o", strings.Join(all, ","))
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	if err := m.cmd.Start(); err != nil {
		t.Fatalf("start s3fs: %v", err)
	}
	go func() { m.ended <- m.cmd.Wait() }()
	t.Cleanup(func() { m.unmount(t) })
	for !mounted(t, m.dir) {
		select {
		case err := <-m.ended:
			m.gone = true
			t.Fatalf("s3fs ended before it had mounted: %v\n%s", err, m.log.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return m
}

// unmount unmounts and waits for the process; a second call does nothing.
func (m *s3fs) unmount(t *testing.T) {
	t.Helper()
	if m.gone {
		return
	}
	m.gone = true
	if out, err := exec.Command("umount", m.dir).CombinedOutput(); err != nil {
		t.Errorf("unmount: %v: %s", err, out)
		if out, err := exec.Command("umount", "-l", m.dir).CombinedOutput(); err != nil {
			t.Errorf("unmount lazily: %v: %s", err, out)
		}
	}
	select {
	case err := <-m.ended:
		if err != nil {
			t.Errorf("s3fs: %v\n%s", err, m.log.Bytes())
		}
	case <-time.After(time.Minute):
		_ = m.cmd.Process.Kill()
		t.Error("s3fs does not end")
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(mounts), " "+dir+" ")
}

func TestS3fs(t *testing.T) {
	t.Parallel()
	for _, signature := range []string{"sigv4", "sigv2"} {
		t.Run(signature, func(t *testing.T) {
			t.Parallel()
			addr := emulate(t, s3fsBucket)
			m := mountS3fs(t, addr, signature)
			dir := m.dir
			want := files()
			tree(t, dir, want)
			sameTree(t, dir, want)

			do := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			do("rename a file", os.Rename(filepath.Join(dir, "small.txt"), filepath.Join(dir, "dir/small + renamed")))
			want["dir/small + renamed"] = want["small.txt"]
			delete(want, "small.txt")
			do("rename a big file", os.Rename(filepath.Join(dir, "big.bin"), filepath.Join(dir, "big ü.bin")))
			want["big ü.bin"] = want["big.bin"]
			delete(want, "big.bin")
			do("rename a directory", os.Rename(filepath.Join(dir, "dir/with space"), filepath.Join(dir, "moved")))
			want["moved/a+b&c=d.bin"] = want["dir/with space/a+b&c=d.bin"]
			delete(want, "dir/with space/a+b&c=d.bin")
			do("chmod", os.Chmod(filepath.Join(dir, "empty"), 0o640))
			do("remove", os.Remove(filepath.Join(dir, "dir/#hash?mark;semi")))
			delete(want, "dir/#hash?mark;semi")
			do("symlink", os.Symlink("big ü.bin", filepath.Join(dir, "link")))

			// Rewriting the middle of a big file makes s3fs copy the parts around it.
			f, err := os.OpenFile(filepath.Join(dir, "big ü.bin"), os.O_RDWR, 0)
			do("open", err)
			patch := content(3333, 9)
			_, err = f.WriteAt(patch, 15<<20)
			do("write", err)
			do("close", f.Close())
			copy(want["big ü.bin"][15<<20:], patch)
			appendFile(t, filepath.Join(dir, "dir/small + renamed"), " and more")
			want["dir/small + renamed"] = []byte("small and more")

			sameTree(t, dir, want)
			m.unmount(t)

			// A second mount has no cache and sees what the server has.
			m = mountS3fs(t, addr, signature)
			dir = m.dir
			sameTree(t, dir, want)
			randomReads(t, filepath.Join(dir, "link"), want["big ü.bin"])
			if info, err := os.Stat(filepath.Join(dir, "empty")); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("mode of empty: %v, %v", info, err)
			}
			do("remove everything", os.RemoveAll(filepath.Join(dir, "dir")))
			entries, err := os.ReadDir(dir)
			do("list", err)
			for _, e := range entries {
				if e.Name() == "dir" {
					t.Error("dir is still listed")
				}
			}
			m.unmount(t)

			// Another client finds the same bytes.
			rclone := rclones(t, addr)["path"]
			for name, b := range want {
				if strings.HasPrefix(name, "dir/") {
					continue
				}
				sameBytes(t, name, []byte(rclone.must(t, "cat", "r:"+s3fsBucket+"/"+name)), b)
			}
		})
	}
}

func appendFile(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// sameTree fails unless the regular files below dir are the wanted ones.
func sameTree(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, ok := want[filepath.ToSlash(name)]
		if !ok {
			return fmt.Errorf("%s is there", name)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sameBytes(t, name, got, b)
		seen++
		return nil
	})
	if err != nil || seen != len(want) {
		t.Errorf("%d of %d files, %v", seen, len(want), err)
	}
}

func randomReads(t *testing.T, path string, want []byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		at := r.IntN(len(want))
		b := make([]byte, min(1+r.IntN(1<<18), len(want)-at))
		if _, err := f.ReadAt(b, int64(at)); err != nil {
			t.Fatalf("read %d bytes at %d: %v", len(b), at, err)
		}
		sameBytes(t, fmt.Sprintf("read at %d", at), b, want[at:at+len(b)])
	}
}
