package fs

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"
)

// A behaviour table does the same system calls on a mount and on the disk of the tests,
// as several users, and compares what each returns and what is there afterwards. Its
// rows are made of kinds of calls, targets and callers. They run in a process of their
// own, by threads that have the caller's user, groups and capabilities, in a directory
// that is emptied after each row.

// tableRow is one row. All paths are relative to an empty directory of mode 0777.
type tableRow struct {
	name   string // says all that tells it from others
	caller string // does act
	setUp  func() error
	act    func() string
}

// tables are made anew in each process: the same rows with the same names.
var tables = map[string]func() []tableRow{
	"privileges":            privilegeRows,
	"privileges of objects": objectPrivilegeRows,
	"posix":                 posixRows,
}

// tableCaller is who does the calls of a row.
type tableCaller struct {
	uid, gid uint32
	groups   []uint32
	// caps are the capabilities beside uid 0; root has all but those in without.
	caps, without uint64
}

// tableCallers are by name. Files belong to 1001:2001, if a row says nothing else.
var tableCallers = map[string]tableCaller{
	"root":                   {},
	"root without fsetid":    {without: 1 << unix.CAP_FSETID},
	"owner":                  {uid: 1001, gid: 2001, groups: []uint32{2001, 2002}},
	"owner by second group":  {uid: 1001, gid: 2009, groups: []uint32{2001, 2002}},
	"owner outside of group": {uid: 1001, gid: 2009, groups: []uint32{2009, 2002}},
	"member of the group":    {uid: 1002, gid: 2001},
	"stranger":               {uid: 1003, gid: 2009},
	"stranger with fsetid":   {uid: 1003, gid: 2009, caps: 1 << unix.CAP_FSETID},
}

// tableDifference says where the mount may differ, and why.
type tableDifference struct {
	// rows matches the names of rows. They may give what matches mount where the disk
	// gives what matches disk; nothing else may differ.
	rows, mount, disk string
	// example is a row that does differ: if it does not any more, the entry is to go.
	example string
	reason  string
}

// covers reports whether d is why a row gives what it gives.
func (d *tableDifference) covers(row, mount, disk string) bool {
	matches := func(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }
	return matches(d.rows, row) && matches("^("+d.mount+") ", mount) && matches("^("+d.disk+") ", disk)
}

type tableArgs struct {
	Table, Root string
	// Every one of Every rows is run, which one says Seed, and those in Also.
	Every, Seed uint64
	Also        []string
}

// tableEvery is 1 for whole tables: PAILFS_TEST_TABLE=all. Short tests do a quarter. Which rows
// those are, says PAILFS_TEST_SEED: as many seeds in a row as it is reach all of them.
func tableEvery(every uint64) uint64 {
	switch {
	case os.Getenv("PAILFS_TEST_TABLE") == "all":
		return 1
	case testing.Short():
		return 4 * every
	}
	return every
}

// takes reports whether a row is one of those that are run. Every seed takes others, as many seeds
// in a row as Every is all of them.
func (a tableArgs) takes(row string) bool { return (xxhash.Sum64String(row)+a.Seed)%a.Every == 0 }

func TestAsManySeedsAsPartsReachAllRowsOfATable(t *testing.T) {
	for name, rows := range tables {
		for _, row := range rows() {
			taken := 0
			for seed := range uint64(10) {
				if (tableArgs{Every: 10, Seed: seed + 7}).takes(row.name) {
					taken++
				}
			}
			if taken != 1 {
				t.Errorf("%s: %s was taken %d times", name, row.name, taken)
			}
		}
	}
}

// compareTable runs one of every rows of a table in a mount's directory and on the disk,
// and fails where they differ without a reason, or have a reason and do not differ.
func compareTable(t *testing.T, table, mount string, every uint64, differences []tableDifference) {
	t.Helper()
	compareTableWith(t, table, mount, tempDir(t), every, differences)
}

// compareTableWith is compareTable beside a directory on the disk that has something in it.
func compareTableWith(t *testing.T, table, mount, disk string, every uint64, differences []tableDifference) {
	t.Helper()
	compared := comparedWith(t, disk)
	args := tableArgs{Table: table, Every: every}
	if os.Getenv("PAILFS_TEST_SEED") != "" { // otherwise always the same
		args.Seed = testSeed()
	}
	for _, d := range differences {
		if d.reason == "" {
			t.Errorf("the difference %s needs a reason", d.rows)
		}
		args.Also = append(args.Also, d.example)
	}
	var got, want map[string]string
	var running sync.WaitGroup
	for root, result := range map[string]*map[string]string{mount: &got, disk: &want} {
		args := args
		args.Root = root
		running.Go(func() {
			if err := tryReader("table", args, result, func(c *exec.Cmd) { c.Env = append(os.Environ(), "GOMAXPROCS=2") }); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d rows of %s, compared with %s", len(want), table, compared)
	used := make(map[string]bool)
	wrong := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] == want[name] {
			continue
		}
		used[name] = true
		if !slices.ContainsFunc(differences, func(d tableDifference) bool { return d.covers(name, got[name], want[name]) }) {
			if wrong++; wrong <= 40 {
				t.Errorf("%s:\n  mount %s\n  disk  %s", name, got[name], want[name])
			}
		}
	}
	if wrong > 40 {
		t.Errorf("%d rows differ", wrong)
	}
	for _, d := range differences {
		if !used[d.example] || !d.covers(d.example, got[d.example], want[d.example]) {
			t.Errorf("%s does not differ as the list has it: mount %s, disk %s", d.example, got[d.example], want[d.example])
		}
	}
}

// runTable does the rows of a table below a directory.
func runTable(a tableArgs) (map[string]string, error) {
	work := filepath.Join(a.Root, "table")
	syscall.Umask(0)
	if err := errors.Join(os.Chmod(a.Root, 0o755), os.Mkdir(work, 0o777)); err != nil {
		return nil, err
	}
	threads := make(map[string]chan<- func())
	on := func(caller string, do func()) error {
		if threads[caller] == nil {
			c, ok := tableCallers[caller]
			if !ok {
				return fmt.Errorf("there is no caller %q", caller)
			}
			th, err := c.start(work)
			if err != nil {
				return fmt.Errorf("begin as %s: %w", caller, err)
			}
			threads[caller] = th
		}
		done := make(chan struct{})
		threads[caller] <- func() {
			defer close(done)
			do()
		}
		<-done
		return nil
	}
	results := make(map[string]string)
	for _, row := range tables[a.Table]() {
		if !a.takes(row.name) && !slices.Contains(a.Also, row.name) {
			continue
		}
		if _, twice := results[row.name]; twice {
			return nil, fmt.Errorf("there are two rows %q", row.name)
		}
		var err error
		var did, left string
		if e := on("root", func() { err = row.setUp() }); e != nil || err != nil {
			return nil, fmt.Errorf("%s: set up: %w", row.name, cmp.Or(err, e))
		}
		if err := on(row.caller, func() { did = row.act() }); err != nil {
			return nil, err
		}
		if e := on("root", func() { left, err = describeTree(); err = errors.Join(err, emptyTree()) }); e != nil || err != nil {
			return nil, fmt.Errorf("%s: look: %w", row.name, cmp.Or(err, e))
		}
		results[row.name] = did + " | " + left
	}
	return results, nil
}

// start begins a thread that has the caller's rights and works in dir.
func (c tableCaller) start(dir string) (chan<- func(), error) {
	work := make(chan func())
	begun := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(dir)
		}
		if err == nil {
			err = c.become()
		}
		begun <- err
		for do := range work {
			do()
		}
	}()
	return work, <-begun
}

// become gives the calling thread, and no other, the rights of c.
func (c tableCaller) become() error {
	raw := func(number uintptr, args ...uintptr) error {
		if _, _, errno := syscall.RawSyscall(number, args[0], args[1], args[2]); errno != 0 {
			return errno
		}
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	groups := append([]uint32{}, c.groups...)
	groups = append(groups, c.gid)
	id, group := uintptr(c.uid), uintptr(c.gid)
	if err := errors.Join(
		raw(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0),
		raw(unix.SYS_SETRESGID, group, group, group),
		raw(unix.SYS_SETRESUID, id, id, id),
	); err != nil {
		return err
	}
	runtime.KeepAlive(groups)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		keep := uint32(c.caps >> (32 * i))
		if c.uid == 0 {
			keep = data[i].Permitted &^ uint32(c.without>>(32*i))
		}
		data[i] = unix.CapUserData{Effective: keep, Permitted: keep}
	}
	return unix.Capset(&header, &data[0])
}

// errnoName is how a row says what a call returned.
func errnoName(err error) string {
	if err == nil {
		return "ok"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// describeTree says what is below the working directory, in one line.
func describeTree() (string, error) {
	var line strings.Builder
	err := filepath.WalkDir(".", func(path string, _ iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name := path
		if len(path) > 40 {
			path = fmt.Sprintf("%.10s…%d", path, len(path))
		}
		fmt.Fprintf(&line, " %s %o %d:%d", path, st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&line, " x%d %d", st.Nlink, st.Size)
			if len(content) > 0 {
				fmt.Fprintf(&line, " %.3x", sha256.Sum256(content))
			}
		case unix.S_IFLNK:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&line, " > %.20s…%d", target, len(target))
		}
		line.WriteByte(';')
		return nil
	})
	return line.String(), err
}

// emptyTree removes what is below the working directory, and makes that as it was.
func emptyTree() error {
	names, err := os.ReadDir(".")
	err = errors.Join(err, unix.Chown(".", 0, 0), unix.Chmod(".", 0o777))
	for _, name := range []string{"user.x", "security.x"} {
		_ = unix.Removexattr(".", name) // it is there after few rows
	}
	for _, d := range names {
		err = errors.Join(err, os.RemoveAll(d.Name()))
	}
	return err
}
