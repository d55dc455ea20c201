package mounting

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// The owner of what the tests look at, and its group.
const (
	fileOwner = 1001
	fileGroup = 2000
)

var (
	rootUser      = &user{name: "root"}
	ownerUser     = &user{name: "owner", uid: fileOwner, gid: 1001}
	memberUser    = &user{name: "member", uid: 1002, gid: fileGroup}
	secondaryUser = &user{name: "supplementary member", uid: 1003, gid: 1003, groups: []uint32{7, fileGroup}}
	otherUser     = &user{name: "other", uid: 1004, gid: 1004}
)

var everyUser = []*user{rootUser, ownerUser, memberUser, secondaryUser, otherUser}

// rightsMount is a mount whose files differ in mode.
type rightsMount struct {
	*programtest.Store
	at    string
	paths []string
	sizes int
	// staged says that nothing can be published at present, and frozen that nothing can be
	// written.
	staged, frozen bool
}

// mountWithModes makes files with all kinds of modes, of the owner and the group, and
// mounts what the bucket keeps of that.
func mountWithModes(t *testing.T, flags ...string) *rightsMount {
	t.Helper()
	m := &rightsMount{Store: programtest.StartStore(t)}
	m.Put(t, "keep/x", []byte("x"))
	_, m.at = m.mount(t, flags...)
	m.RefuseUploads(t, true)
	for _, dir := range []uint32{0o755, 0o750, 0o700, 0o711, 0o744, 0o070} {
		name := fmt.Sprintf("d%03o", dir)
		m.mkdir(t, name)
		for _, mode := range []uint32{0o644, 0o640, 0o604, 0o600, 0o000} {
			m.file(t, fmt.Sprintf("%s/f%03o", name, mode), mode)
		}
		m.mkdir(t, name+"/sub")
		m.file(t, name+"/sub/y", 0o644)
		m.paths = append(m.paths, name+"/missing", name+"/f644/below", name+"/missing/below")
		m.modes(t, name, dir)
	}
	for name, mode := range map[string]uint32{"d755/fifo": unix.S_IFIFO | 0o644, "d755/fifo600": unix.S_IFIFO | 0o600, "d711/socket": unix.S_IFSOCK | 0o644} {
		if err := unix.Mknod(filepath.Join(m.at, name), mode, 0); err != nil {
			t.Fatal(err)
		}
		m.modes(t, name, mode&0o777)
		m.paths = append(m.paths, name)
	}
	m.mkdir(t, "open")
	m.file(t, "open/worker-0.session", 0o600)
	m.modes(t, "open", 0o777)
	m.mkdir(t, "sticky")
	m.file(t, "sticky/worker-0.session", 0o666)
	m.modes(t, "sticky", 0o1777)
	for name, target := range map[string]string{
		"open-link": "d755/f644", "closed-link": "d700/f644", "dir-link": "d750", "d755/up": "../d711/f644",
		"d700/out": "../d755/f644", "loop": "loop", "dangling": "d700/none",
	} {
		if err := os.Symlink(target, filepath.Join(m.at, name)); err != nil {
			t.Fatal(err)
		}
		m.paths = append(m.paths, name)
	}
	m.paths = append(m.paths, "dir-link/f644", "dir-link/sub", "dir-link/missing", "missing", "keep", "keep/x")
	return m
}

// mount mounts the bucket for every user.
func (m *rightsMount) mount(t *testing.T, flags ...string) (*programtest.Foreground, string) {
	t.Helper()
	f, at := programtest.WritableMount(t, m.Store, filepath.Join(t.TempDir(), "cache"), append([]string{"--allow-other", "--prefetch", "hints"}, flags...)...)
	programtest.OpenUp(t, at)
	return f, at
}

// anew publishes everything, writes a manifest of it and mounts again.
func (m *rightsMount) anew(t *testing.T, flags []string) {
	t.Helper()
	m.RefuseUploads(t, false)
	programtest.MustRun(t, "umount", m.at)
	programtest.MustRun(t, "manifest", "build", "oss://"+programtest.TestBucket, "--endpoint="+m.Endpoint, "--attrs")
	_, m.at = m.mount(t, flags...)
	m.RefuseUploads(t, true) // no session is to be saved where files are compared
}

func (m *rightsMount) mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(m.at, name), 0o755); err != nil {
		t.Fatal(err)
	}
	m.paths = append(m.paths, name)
}

// file makes a file of a size that no other has.
func (m *rightsMount) file(t *testing.T, name string, mode uint32) {
	t.Helper()
	m.sizes++
	programtest.WriteFile(t, filepath.Join(m.at, name), strings.Repeat("x", 1000+m.sizes))
	m.paths = append(m.paths, name)
	m.modes(t, name, mode)
}

// modes gives a name to the owner with a mode.
func (m *rightsMount) modes(t *testing.T, name string, mode uint32) {
	t.Helper()
	at := filepath.Join(m.at, name)
	if err := os.Chown(at, fileOwner, fileGroup); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(at, mode); err != nil {
		t.Fatal(err)
	}
}

// methodRow says how a method of the control channel decides about paths.
type methodRow func(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict)

// methodRows has every method: what it does with paths, or nil where it takes none or where
// the row of another calls it.
var methodRows = map[string]methodRow{
	"hello":          nil,
	"status":         statusNamesNobodysFiles,
	"umount":         ownersOnly,
	"drain":          nil, // ownersOnly, as accept and page
	"page":           nil,
	"accept":         nil,
	"flush":          flushIsRefused,
	"loader.open":    persistenceIsRefused,
	"loader.close":   nil,
	"loader.renew":   nil,
	"loader.quota":   nil,
	"loader.preload": announcedIsToldAsTheKernelWould,
	"loader.active":  nil, // announcedIsToldAsTheKernelWould, as well as release, wait and status
	"loader.release": nil,
	"loader.wait":    nil,
	"loader.status":  nil,
	"warm.open":      nil,
	"warm.add":       warmedIsToldAsTheKernelWould,
	"warm.progress":  nil, // warmedIsToldAsTheKernelWould
	"warm.close":     nil,
	"evict":          evictedAsTheKernelWould,
	"measure":        measuredAsTheKernelWould,
}

// TestEveryMethodDecidesAsTheKernelDoes asks the kernel and the control channel about the same
// paths, for several users, wherever the mount has the modes from.
func TestEveryMethodDecidesAsTheKernelDoes(t *testing.T) {
	m := mountWithModes(t)
	published := map[*user][]verdict{}
	for _, pass := range []struct {
		name   string
		frozen bool
		flags  []string
	}{
		{name: "staged"},
		{name: "in another mount", flags: []string{"--manifest=off"}},
		{name: "of a manifest that is followed", flags: []string{"--manifest=follow"}},
		{name: "of a manifest that is frozen", frozen: true, flags: []string{"--manifest=frozen", "--read-only"}},
	} {
		if m.staged = pass.flags == nil; !m.staged {
			m.anew(t, pass.flags)
		}
		m.frozen = pass.frozen
		t.Run(pass.name, func(t *testing.T) {
			var hello control.Hello
			rootUser.call(t, m.at, "hello", nil, &hello)
			if rows := slices.Sorted(maps.Keys(methodRows)); !slices.Equal(hello.Methods, rows) {
				t.Errorf("the daemon has the methods %v, the table %v", hello.Methods, rows)
			}
			for _, u := range everyUser {
				t.Run(u.name, func(t *testing.T) {
					want := u.run(t, errand{Dir: m.at, Probe: m.paths}).Kernel
					if before := published[u]; before != nil {
						alike(t, m.paths, want, before)
					} else if !m.staged {
						published[u] = want
					}
					for _, method := range slices.Sorted(maps.Keys(methodRows)) {
						if row := methodRows[method]; row != nil {
							t.Run(method, func(t *testing.T) { row(t, m, u, m.paths, want) })
						}
					}
				})
			}
		})
	}
}

// alike fails where the kernel decides otherwise about reading than in another mount.
func alike(t *testing.T, paths []string, got, want []verdict) {
	t.Helper()
	for i, path := range paths {
		if g, w := got[i], want[i]; g.Errno != w.Errno || (g.Denied > 0) != (w.Denied > 0) || !maps.Equal(g.Files, w.Files) {
			t.Errorf("%s: the kernel says %+v, and of what the metadata says %+v", path, g, w)
		}
	}
}

// TestASessionSeesNoMoreThanItsDirectoryAllowed: where another directory has taken the path of
// the one on which a session was opened, the session has to search what is above that.
func TestASessionSeesNoMoreThanItsDirectoryAllowed(t *testing.T) {
	m := &rightsMount{Store: programtest.StartStore(t)}
	m.Put(t, "p/d/x", []byte("seen"))
	m.Put(t, "new/d/secret", []byte("a secret of some length"))
	_, m.at = m.mount(t)
	held, err := os.Open(filepath.Join(m.at, "p/d")) // as the process that opens the session does
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }() // a directory
	var open control.OpenResult
	otherUser.call(t, filepath.Join(m.at, "p/d"), "loader.open", control.OpenParams{Task: "task", Buffer: 10}, &open)
	for _, err := range []error{
		os.Rename(filepath.Join(m.at, "p"), filepath.Join(m.at, "q")),
		os.Rename(filepath.Join(m.at, "new"), filepath.Join(m.at, "p")),
		os.Chmod(filepath.Join(m.at, "p"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	programtest.MustRun(t, "flush", m.at)
	params := control.PathsParams{Session: open.Session, Paths: []string{"p/d/secret", "p/d/none", "q/d/x"}, Timeout: programtest.Patience.Milliseconds()}
	answers := otherUser.run(t, errand{Dir: m.at, Calls: []userCall{
		{"loader.preload", params}, {"loader.wait", params}, {"loader.status", control.PathsParams{Session: open.Session}},
	}}).Answers
	var waited control.WaitResult
	answers[1].into(t, &waited)
	for i, want := range []control.FileStatus{{State: "failed", Errno: "EACCES"}, {State: "failed", Errno: "EACCES"}, {State: "ready", Ready: true, Files: 1, Bytes: 4}} {
		f := waited.Files[i]
		f.Path, f.Error = "", ""
		if f != want {
			t.Errorf("%s: told %+v, want %+v", params.Paths[i], waited.Files[i], want)
		}
	}
	var status control.StatusResult
	answers[2].into(t, &status)
	if s := status.Session; s == nil || s.Failed.Files != 2 || s.Ready.Files != 1 || s.Ready.Bytes != 0 || s.Charged != 0 {
		t.Errorf("on another directory than that of the session: %+v", status.Session)
	}
}

// TestEveryMethodIsDocumented: prefetch/control/PROTOCOL.md has what the table above has.
func TestEveryMethodIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../prefetch/control/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for method := range methodRows {
		if !strings.Contains(string(text), "`"+method+"`") {
			t.Errorf("PROTOCOL.md does not tell of %s", method)
		}
	}
}

// ownersOnly: the mount is root's.
func ownersOnly(t *testing.T, m *rightsMount, u *user, _ []string, _ []verdict) {
	if u == rootUser {
		return
	}
	for _, a := range u.run(t, errand{Dir: m.at, Calls: []userCall{{"umount", nil}, {"page", nil}, {"drain", nil}, {"accept", wire.AcceptParams{Path: "keep/x"}}, {"evict", control.EvictParams{Paths: []string{"keep"}}}}}).Answers {
		if a.Code != string(control.CodeRefused) {
			t.Errorf("told %q: %s", a.Code, a.Result)
		}
	}
}

func statusNamesNobodysFiles(t *testing.T, m *rightsMount, u *user, _ []string, _ []verdict) {
	var raw json.RawMessage
	u.call(t, m.at, "status", nil, &raw)
	for _, name := range []string{"d700", "d755"} {
		if u != rootUser && strings.Contains(string(raw), name) {
			t.Errorf("told of %s: %s", name, raw)
		}
	}
}

func flushIsRefused(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict) {
	if m.staged {
		paths, want = paths[:12], want[:12] // each of them waits
	}
	e := errand{Dir: m.at}
	for _, path := range paths {
		e.Calls = append(e.Calls, userCall{"flush", wire.FlushParams{Path: path}})
	}
	for i, a := range u.run(t, e).Answers {
		switch got := a.Code; {
		case want[i].Errno == "EIO": // too many links, or a fifo
		case (want[i].Errno == "EACCES") != (got == string(control.CodeRefused)) || got != "" && got != string(control.CodeRefused):
			t.Errorf("%s: told %q %s, the kernel says %q", paths[i], a.Code, a.Message, want[i].Errno)
		case u != rootUser && (strings.Contains(string(a.Result), "paths") || strings.Contains(string(a.Result), "f6")):
			t.Errorf("%s: names are told: %s", paths[i], a.Result)
		}
	}
}

// persistenceIsRefused: a session is kept where the user could make, replace, read and
// remove its file.
func persistenceIsRefused(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict) {
	e := errand{Dir: m.at}
	for _, path := range paths {
		e.Calls = append(e.Calls, userCall{"loader.open", control.OpenParams{Persistence: path, Buffer: 1}})
	}
	closing := errand{Dir: m.at}
	for i, a := range u.run(t, e).Answers {
		var open control.OpenResult
		a.into(t, &open)
		closing.Calls = append(closing.Calls, userCall{"loader.close", control.CloseParams{Session: open.Session}})
		if m.frozen { // whatever is at the path
			if p := open.Persistence; p.Kind == keep.KindMount || !strings.HasPrefix(p.Reason, "the mount cannot be written") {
				t.Errorf("%s: %+v", paths[i], p)
			}
			continue
		}
		may := want[i].Writable && want[i].Errno != "ENOENT"
		switch path := paths[i]; {
		case path == "open", path == "sticky":
			// It holds a file of the owner's, which is no session once it is in the bucket.
			if u == rootUser || u == ownerUser {
				continue
			}
			if open.Persistence.Reason != fmt.Sprintf("user %d: a session is not kept where its user may not make, replace and remove its file", u.uid) {
				t.Errorf("%s: %+v", path, open.Persistence)
			}
			may = false
		case want[i].Errno == "ENOENT" && slices.Contains([]string{"fifo", "fifo600", "socket"}, filepath.Base(path)): // it has gone with its mount
			may = u == rootUser || want[slices.Index(paths, filepath.Dir(path))].Writable
		case strings.HasPrefix(path, "dir-link"), strings.HasSuffix(path, "link"):
			may = false // it would not be followed
		case strings.HasSuffix(path, "/missing"), strings.HasSuffix(path, "/missing/below"), path == "missing":
			dir, _, _ := strings.Cut(path, "missing")
			may = u == rootUser || dir != "" && want[slices.Index(paths, strings.TrimSuffix(dir, "/"))].Writable
		case want[i].Errno == "" && len(want[i].Files) == 1 && want[i].Files[""] > 0:
			may = false // a file
		}
		if got := open.Persistence.Kind == keep.KindMount; got != may {
			t.Errorf("%s: %+v, the kernel says %+v", paths[i], open.Persistence, want[i])
		}
	}
	u.run(t, closing)
}

// announcedIsToldAsTheKernelWould: what a session has announced is fetched and told if the
// user may read it.
func announcedIsToldAsTheKernelWould(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict) {
	var open control.OpenResult
	u.call(t, m.at, "loader.open", control.OpenParams{Task: "task", Buffer: 1000}, &open)
	params := control.PathsParams{Session: open.Session, Paths: paths, Timeout: programtest.Patience.Milliseconds()}
	active := params
	active.Index = 1
	var waited, alive control.WaitResult
	var status control.StatusResult
	answers := u.run(t, errand{Dir: m.at, Calls: []userCall{
		{"loader.preload", params},
		{"loader.active", active},
		{"loader.wait", params},
		{"loader.wait", active},
		{"loader.status", params},
	}}).Answers
	for i, into := range []any{&control.PreloadResult{}, &control.ActiveResult{}, &waited, &alive, &status} {
		if answers[i].Code != "" {
			t.Fatal(answers[i])
		}
		answers[i].into(t, into)
	}
	for name, files := range map[string][]control.FileStatus{"waited": waited.Files, "active": alive.Files, "status": status.Files} {
		for i, f := range files {
			w := want[i]
			bytes := int64(0)
			for _, size := range w.Files {
				bytes += size
			}
			errno := w.Errno
			if errno == "" && w.Denied > 0 {
				errno = "EACCES" // a folder is had whole or not at all
			}
			if m.staged {
				bytes = f.Bytes // what is no object yet has nothing to be fetched
			}
			switch {
			case errno != f.Errno, errno != "" && (f.Files != 0 || f.Bytes != 0 || f.State != "failed"):
				t.Errorf("%s %s: %+v, the kernel says %+v", name, paths[i], f, w)
			case errno == "" && (!f.Ready || f.Bytes != bytes):
				t.Errorf("%s %s: %+v, the kernel says %+v", name, paths[i], f, w)
			}
		}
	}
	var released control.ReleaseResult
	u.call(t, m.at, "loader.release", params, &released)
	if released.Released != len(paths) {
		t.Errorf("%+v", released)
	}
	var closed control.CloseResult
	u.call(t, m.at, "loader.close", control.CloseParams{Session: open.Session}, &closed)
}

// warmedIsToldAsTheKernelWould: results name what the user may read, and what cannot be
// opened where the names may be known.
func warmedIsToldAsTheKernelWould(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict) {
	var open control.WarmOpenResult
	u.call(t, m.at, "warm.open", control.WarmOpenParams{Each: true}, &open)
	var added control.WarmAddResult
	u.call(t, m.at, "warm.add", control.WarmAddParams{Job: open.Job, Paths: paths, Last: true}, &added)
	if added.Accepted != len(paths) {
		t.Fatalf("%+v", added)
	}
	results, _ := u.warmed(t, m.at, open.Job)
	for i, path := range paths {
		w := want[i]
		if below := results[path]; len(below) == 0 {
			t.Errorf("%s: no result", path)
			continue
		}
		r := results[path][len(results[path])-1]
		state := "ready"
		switch {
		case w.Errno != "":
			state = "failed"
		case w.Denied > 0:
			state = "partly"
		}
		if r.State != state || state != "failed" && r.Files != int64(len(w.Files)) || state == "failed" && (r.Files != 0 || r.Bytes != 0) {
			t.Errorf("%s: %+v, the kernel says %+v", path, r, w)
		}
		delete(results, path)
	}
	for path := range results {
		t.Errorf("a result for %s, which was neither named nor is there", path)
	}
}

// warmed returns the results of a job by path, when it has ended.
func (u *user) warmed(t *testing.T, dir, job string) (results map[string][]warm.Result, last warm.Progress) {
	t.Helper()
	results = map[string][]warm.Result{}
	programtest.Eventually(t, "the job has ended", func() bool {
		next := last.Next
		last = warm.Progress{}
		u.call(t, dir, "warm.progress", control.WarmProgressParams{Job: job, After: next}, &last)
		for _, r := range last.Results {
			results[r.Path] = append(results[r.Path], r)
		}
		return last.Finished
	})
	return results, last
}

func measuredAsTheKernelWould(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict) {
	var measured control.MeasureResult
	u.call(t, m.at, "measure", control.MeasureParams{Paths: paths}, &measured)
	for i, r := range measured.Results {
		w, bytes := want[i], int64(0)
		for _, size := range w.Files {
			bytes += size
		}
		if failed := w.Errno != "" || w.Denied > 0; failed != (r.Error != "") || r.Files != int64(len(w.Files)) || r.Bytes != bytes {
			t.Errorf("%s: %+v, the kernel says %+v", paths[i], r, w)
		}
	}
}

// evictedAsTheKernelWould: only whom the mount belongs to may.
func evictedAsTheKernelWould(t *testing.T, m *rightsMount, u *user, paths []string, want []verdict) {
	ownersOnly(t, m, u, paths, want)
	if u != rootUser {
		return
	}
	var evicted control.EvictResult
	u.call(t, m.at, "evict", control.EvictParams{Paths: paths}, &evicted)
	for i, r := range evicted.Results {
		if (want[i].Errno != "") != (r.Error != "") {
			t.Errorf("%s: %+v, the kernel says %+v", paths[i], r, want[i])
		}
	}
}
