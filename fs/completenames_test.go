package fs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// Who looked at a directory once and now lists names only, in small directories, asks for no
// attributes.
func TestListingOfNamesOfSmallDirectoriesAfterAStat(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w, tree, e := mountModes(t, 20, 60)
	client := writtenClient(t, e, testLog(t))
	for i := range 100 {
		_, err := client.As(oss.Upload).Put(t.Context(), fmt.Sprintf("big/%04d", i), strings.NewReader("x"),
			oss.PutOptions{Meta: map[string]string{"mode": fmt.Sprint(0o100000 + modeOf(i))}})
		must(t, err)
	}
	must(t, client.Close())
	listAndStat(t, w, "big", 100, dirBlock, false)
	before, calls := e.Requests("HeadObject"), tree.completed.Load()
	for d := range 20 {
		if got := len(listed(t, w.path(fmt.Sprintf("d%d", d)))); got != 60 {
			t.Errorf("%d names", got)
		}
	}
	if n := e.Requests("HeadObject") - before; n > 20+2*60 {
		t.Errorf("%d HEADs, %d Completes for names alone of 20 small directories", n, tree.completed.Load()-calls)
	}
}

// Names alone cost nothing, also while others open files of the directory.
func TestListingOfNamesWhileOthersLook(t *testing.T) {
	const files = 3000
	w, tree, e := mountModes(t, 1, files)
	fd := openDir(t, w.path("d0"))
	defer closeFD(t, fd)
	other := make(chan string)
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		for name := range other {
			f, err := os.Open(name)
			if err == nil {
				err = f.Close()
			}
			done <- err
		}
	}()
	defer close(other)
	buf := make([]byte, 32<<10)
	looked := 0
	for {
		some, err := getdents(fd, buf)
		must(t, err)
		if len(some) == 0 {
			break
		}
		other <- w.path(fmt.Sprintf("d0/%04d", 100*looked))
		must(t, <-done)
		looked++
	}
	if n := e.Requests("HeadObject"); n > int64(100*looked) {
		t.Errorf("%d HEADs (%d Completes) where names were listed and %d files opened", n, tree.completed.Load(), looked)
	}
}
