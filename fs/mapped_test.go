package fs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// storeAfterClose maps a file, closes it, and stores into the mapping when a line
// arrives. A page fault on a mount of our own may stop this process for good, so that
// another one does it.
const storeAfterClose = `import ctypes,os,sys
libc=ctypes.CDLL(None,use_errno=True)
libc.mmap.restype=ctypes.c_void_p
libc.mmap.argtypes=[ctypes.c_void_p,ctypes.c_size_t,ctypes.c_int,ctypes.c_int,ctypes.c_int,ctypes.c_long]
libc.munmap.argtypes=[ctypes.c_void_p,ctypes.c_size_t]
fd=os.open(sys.argv[1],os.O_RDWR)
m=libc.mmap(None,1<<20,3,1,fd,0)
if m==ctypes.c_void_p(-1).value: sys.exit("mmap: %d"%ctypes.get_errno())
os.close(fd)
print("closed",flush=True)
sys.stdin.readline()
ctypes.memmove(m,b"first",5)
libc.munmap(m,1<<20)`

// TestStoresAfterTheCloseAreKept stores into a mapping of an object when its last
// descriptor is closed already: in passthrough the release has come by then.
func TestStoresAfterTheCloseAreKept(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: On, PassthroughMin: 1}})
	want := random(5, 1<<20)
	w.Put("object", want)
	cmd := exec.Command("python3", "-c", storeAfterClose, w.path("object"))
	var failure bytes.Buffer
	cmd.Stderr = &failure
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line := make([]byte, len("closed\n"))
	if _, err := io.ReadFull(out, line); err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: %s", err, failure.String())
	}
	eventually(t, "the file is released", func() bool { return w.mount.Status().OpenFiles == 0 })
	_, err = io.WriteString(in, "\n")
	must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, failure.String())
	}
	copy(want, "first")
	same(t, readAll(t, w.path("object")), want)
	eventually(t, "the stores are published", func() bool {
		w.drain(t)
		return bytes.Equal(w.Get("object"), want)
	})
}

// TestReleaseLeavesAnOpenItsDecision releases the last reader while an open has
// chosen the file that the kernel is to use, and has not answered yet.
func TestReleaseLeavesAnOpenItsDecision(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: On, PassthroughMin: 1}})
	must(t, os.WriteFile(w.path("file"), random(6, 1<<20), 0o644))
	f, err := os.OpenFile(w.path("file"), os.O_RDWR, 0)
	must(t, err)
	n := w.mount.fs.inodes.nodes.get(inode64(t, w.path("file")))
	if n == nil {
		t.Fatal("the file has no inode")
	}
	open := w.mount.fs.writes.handles.Len
	eventually(t, "what wrote the file is released", func() bool { return open() == 1 })
	st := n.opened()
	st.opening.Lock()
	must(t, f.Close())
	eventually(t, "the release has come", func() bool { return open() == 0 })
	if !st.inUse() {
		t.Error("the decision for a file was undone during an open")
	}
	st.opening.Unlock()
	eventually(t, "the file is released", func() bool { return w.mount.Status().OpenFiles == 0 })
	if st.inUse() {
		t.Error("the file is in use although nobody has it open")
	}
}

// storeIntoPage maps the page at an offset of descriptor 3, shows what it holds, and stores
// what it is sent into it.
const storeIntoPage = `import mmap,sys
m=mmap.mmap(3,4096,offset=int(sys.argv[1]))
sys.stdout.buffer.write(m[:])
b=sys.stdin.buffer.read()
m[:len(b)]=b
m.flush()
m.close()`

// storeMapped stores content into a page of f through a shared mapping of another process, and
// returns what the page held.
func storeMapped(f *os.File, at int64, content []byte) (before string, err error) {
	cmd := exec.Command("python3", "-c", storeIntoPage, fmt.Sprint(at))
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stdin = bytes.NewReader(content)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	page, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, failure.String())
	}
	return string(page), nil
}
