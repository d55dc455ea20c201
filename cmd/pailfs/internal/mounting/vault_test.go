package mounting

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/residency"
)

// vaultMount has vault/, which is root's alone, and pub/, which is not.
func vaultMount(t *testing.T, flags ...string) *rightsMount {
	t.Helper()
	m := &rightsMount{Store: programtest.StartStore(t)}
	for i := range 20 {
		m.Put(t, fmt.Sprintf("vault/secret-%02d", i), make([]byte, 1000+i))
		m.Put(t, fmt.Sprintf("pub/%02d", i), make([]byte, 1000))
	}
	m.Put(t, "vault/way/x", []byte("x"))
	_, m.at = m.mount(t, flags...)
	return m
}

// close takes the vault away from others.
func (m *rightsMount) close(t *testing.T, name string) {
	t.Helper()
	if err := os.Chmod(filepath.Join(m.at, name), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestAVaultTellsNothing: whoever may not enter a directory learns neither names nor sizes nor
// whether something is there.
func TestAVaultTellsNothing(t *testing.T) {
	t.Parallel()
	m := vaultMount(t)
	m.close(t, "vault")
	m.RefuseUploads(t, true)
	programtest.WriteFile(t, filepath.Join(m.at, "vault", "secret-new"), "new")
	gets := m.Stats().Operations["GetObject"].Requests

	var job control.WarmOpenResult
	otherUser.call(t, m.at, "warm.open", control.WarmOpenParams{Each: true}, &job)
	paths := []string{"vault", "vault/secret-00", "vault/none", "vault/secret-new"}
	otherUser.call(t, m.at, "warm.add", control.WarmAddParams{Job: job.Job, Paths: paths, Last: true}, &control.WarmAddResult{})
	results, last := otherUser.warmed(t, m.at, job.Job)
	if last.Files != 0 || last.Bytes != 0 || len(results) != len(paths) {
		t.Errorf("%+v, %+v", last, results)
	}
	var open control.OpenResult
	otherUser.call(t, m.at, "loader.open", control.OpenParams{Task: "t", Buffer: 10}, &open)
	params := control.PathsParams{Session: open.Session, Paths: paths, Timeout: programtest.Patience.Milliseconds()}
	answers := otherUser.run(t, errand{Dir: m.at, Calls: []userCall{
		{"loader.preload", params},
		{"loader.wait", params},
		{"measure", control.MeasureParams{Paths: paths}},
		{"status", nil},
		{"flush", wire.FlushParams{}},
		{"flush", wire.FlushParams{Path: "vault/none"}},
		{"loader.status", control.PathsParams{Session: open.Session}},
	}}).Answers
	var waited control.WaitResult
	answers[1].into(t, &waited)
	var measured control.MeasureResult
	answers[2].into(t, &measured)
	for i, path := range paths {
		f, r, w := waited.Files[i], measured.Results[i], results[path][0]
		if f != (control.FileStatus{Path: path, State: "failed", Error: "user 1004 may not read it", Errno: "EACCES"}) {
			t.Errorf("told %+v", f)
		}
		if r.Path = ""; r != (residency.Measured{Error: "user 1004 may not read it"}) {
			t.Errorf("told %+v", r)
		}
		if w.State != "failed" || w.Files != 0 || w.Bytes != 0 || w.Error != "user 1004 may not read it" {
			t.Errorf("told %+v", w)
		}
	}
	if answers[5].Code != string(control.CodeRefused) {
		t.Errorf("flush: %+v", answers[5])
	}
	var flushed wire.FlushAnswer
	answers[4].into(t, &flushed)
	if flushed.Done || flushed.Left == 0 {
		t.Errorf("flush counts nothing: %s", answers[4].Result)
	}
	for i, a := range answers {
		if strings.Contains(string(a.Result), "secret-") && i != 1 && i != 2 {
			t.Errorf("answer %d names what is in the vault: %s", i, a.Result)
		}
	}
	if n := m.Stats().Operations["GetObject"].Requests - gets; n > 0 {
		t.Errorf("%d objects were fetched for who may not read them", n)
	}
	programtest.Eventually(t, "root is told what waits", func() bool {
		var raw json.RawMessage
		rootUser.call(t, m.at, "status", nil, &raw)
		return strings.Contains(string(raw), "secret-new")
	})
	var raw json.RawMessage
	if otherUser.call(t, m.at, "status", nil, &raw); strings.Contains(string(raw), "secret-") {
		t.Errorf("others are told what waits: %s", raw)
	}
	m.RefuseUploads(t, false)
}

// TestRightsCountWhenTheyAreUsed: not when the job, or the session, was opened.
func TestRightsCountWhenTheyAreUsed(t *testing.T) {
	t.Parallel()
	m := vaultMount(t)
	u := otherUser
	var job control.WarmOpenResult
	u.call(t, m.at, "warm.open", control.WarmOpenParams{Each: true}, &job)
	u.call(t, m.at, "warm.add", control.WarmAddParams{Job: job.Job, Paths: []string{"vault"}}, &control.WarmAddResult{})
	var open control.OpenResult
	u.call(t, m.at, "loader.open", control.OpenParams{Task: "t", Buffer: 10}, &open)
	params := control.PathsParams{Session: open.Session, Paths: []string{"vault/secret-05", "pub/00"}, Timeout: programtest.Patience.Milliseconds()}
	u.call(t, m.at, "loader.preload", params, &control.PreloadResult{})
	var waited control.WaitResult
	u.call(t, m.at, "loader.wait", params, &waited)
	if f := waited.Files[0]; !f.Ready || f.Bytes != 1005 {
		t.Errorf("what may be read: %+v", f)
	}
	programtest.Eventually(t, "the vault is warm", func() bool {
		var measured control.MeasureResult
		u.call(t, m.at, "measure", control.MeasureParams{Paths: []string{"vault"}}, &measured)
		return measured.Results[0].FilesWarm == 21
	})
	m.close(t, "vault")
	u.call(t, m.at, "warm.add", control.WarmAddParams{Job: job.Job, Paths: []string{"vault/way/x"}, Last: true}, &control.WarmAddResult{})
	results, _ := u.warmed(t, m.at, job.Job)
	for path, r := range results {
		if path != "vault" && path != "vault/way/x" || r[0].State != "failed" || r[0].Bytes != 0 {
			t.Errorf("told %+v", r)
		}
	}
	for _, method := range []string{"loader.wait", "loader.status"} {
		var told control.WaitResult
		u.call(t, m.at, method, params, &told)
		if f := told.Files[0]; f.Errno != "EACCES" || f.Bytes != 0 || f.Ready {
			t.Errorf("%s of what may not be read any more: %+v", method, f)
		}
		if !told.Files[1].Ready {
			t.Errorf("%s: %+v", method, told.Files[1])
		}
	}
	if err := os.Chmod(filepath.Join(m.at, "vault"), 0o755); err != nil {
		t.Fatal(err)
	}
	if u.call(t, m.at, "loader.wait", params, &waited); !waited.Files[0].Ready {
		t.Errorf("what may be read again: %+v", waited.Files[0])
	}
}

// TestADescriptorOpensTheWay: who was given a directory needs no right to what lies above, as
// in a container that sees a part of the mount, and gets nothing from beside it.
func TestADescriptorOpensTheWay(t *testing.T) {
	t.Parallel()
	m := vaultMount(t)
	if err := os.Symlink("../secret-00", filepath.Join(m.at, "vault", "way", "out")); err != nil {
		t.Fatal(err)
	}
	m.close(t, "vault")
	view := filepath.Join(t.TempDir(), "view")
	if err := os.Mkdir(view, 0o755); err != nil {
		t.Fatal(err)
	}
	programtest.OpenUp(t, filepath.Join(view, "x"))
	if err := unix.Mount(filepath.Join(m.at, "vault", "way"), view, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(view, unix.MNT_DETACH) })
	for _, u := range []*user{otherUser, rootUser} {
		h := u.run(t, errand{Dir: view, Probe: []string{"x", "out"}, Calls: []userCall{
			{"measure", control.MeasureParams{Paths: []string{"x", "out", ""}}},
			{"flush", wire.FlushParams{Path: "x"}},
		}})
		if h.Kernel[0].Errno != "" || h.Kernel[1].Errno != "ENOENT" || h.Answers[1].Code != "" {
			t.Errorf("%+v", h)
		}
		var measured control.MeasureResult
		h.Answers[0].into(t, &measured)
		if r := measured.Results; r[0].Files != 1 || r[0].Error != "" || !strings.HasSuffix(r[1].Error, "may not read it") || r[2].Files != 1 {
			t.Errorf("%+v", r)
		}
	}
}

// TestStatusTellsContainersNothingOfTheHost: root of a container is told no session of root, nobody
// one by a name that lies where it does not look, and no path of the host is told there.
func TestStatusTellsContainersNothingOfTheHost(t *testing.T) {
	t.Parallel()
	m := vaultMount(t)
	if err := os.Mkdir(filepath.Join(m.at, "vault", "private"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, dir := range []string{"vault/private", "pub"} {
		at := filepath.Join(m.at, dir)
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, u := range []*user{rootUser, otherUser} {
			open := control.OpenParams{Persistence: "sessions", Buffer: 10, Worker: i}
			u.call(t, at, "loader.open", open, &control.OpenResult{})
		}
	}
	m.close(t, "vault")

	guest := &user{name: "root of a container", contained: true}
	contained := &user{name: "other in a container", uid: otherUser.uid, gid: otherUser.gid, contained: true}
	for _, c := range []struct {
		u     *user
		dir   string
		tasks []string
		host  bool
	}{
		{rootUser, "", []string{"pub/sessions", "pub/sessions", "vault/private/sessions", "vault/private/sessions"}, true},
		{otherUser, "", []string{"", ""}, true},
		{otherUser, "pub", []string{"", "sessions"}, false},
		{contained, "", []string{"", ""}, false},
		{contained, "pub", []string{"", "sessions"}, false},
		{guest, "", nil, false},
		{guest, "pub", nil, false},
	} {
		var raw json.RawMessage
		c.u.call(t, filepath.Join(m.at, c.dir), "status", nil, &raw)
		var told wire.Status
		if err := json.Unmarshal(raw, &told); err != nil {
			t.Fatal(err)
		}
		var tasks []string
		for _, s := range told.Loader.Sessions {
			tasks = append(tasks, s.Task)
		}
		if slices.Sort(tasks); !slices.Equal(tasks, c.tasks) {
			t.Errorf("%s at %q is told of the sessions %q, want %q", c.u.name, c.dir, tasks, c.tasks)
		}
		if got := strings.Contains(string(raw), filepath.Dir(m.at)) && told.MountPoint == m.at && told.Cache.SSD.Dir != ""; got != c.host {
			t.Errorf("%s at %q is told paths of the host: %v, want %v", c.u.name, c.dir, got, c.host)
		}
		if !c.host && (strings.Contains(string(raw), filepath.Dir(m.at)) || strings.Contains(string(raw), os.TempDir()+"/") || told.Log != "") {
			t.Errorf("%s at %q is told a path of the host: %s", c.u.name, c.dir, raw)
		}
	}
}

// TestContainersAreToldHowManyWarnings: the texts of warnings, and of what fails, may name paths of the host.
func TestContainersAreToldHowManyWarnings(t *testing.T) {
	r := wire.Status{
		Warnings: []string{"/host/a", "/host/b"}, MountPoint: "/host", Log: "/host/log",
		Manifest: wire.Names{Asked: "/host/m", File: "/host/m", Reason: "/host/m"},
		Store:    wire.Store{Credentials: wire.Credentials{Error: "open /host/keys"}},
		Cache:    cache.Stats{SSD: &cache.SSDStats{Dir: "/host/cache", LastError: "write /host/cache"}},
	}
	statusForContainer(&r)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "/host") || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "2 of them") {
		t.Errorf("told %s", text)
	}
}

// TestAnUmaskGivesNoWayIntoAVault: the daemon, which may write everywhere, keeps no session
// where its user may not write.
func TestAnUmaskGivesNoWayIntoAVault(t *testing.T) {
	t.Parallel()
	m := vaultMount(t, "--umask", "0")
	m.close(t, "vault")
	open := func(path string) (open control.OpenResult) {
		otherUser.call(t, m.at, "loader.open", control.OpenParams{Persistence: path, Buffer: 10}, &open)
		return open
	}
	for path, want := range map[string]string{"vault": "node", "vault/way": "node", "vault/none": "node", "pub": "mount", "new/dir": "mount"} {
		if got := open(path).Persistence.Kind; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	// A right that is lost ends it: what is announced after that is not written.
	lost := open("pub").Session
	m.close(t, "pub")
	otherUser.call(t, m.at, "loader.preload", control.PathsParams{Session: lost, Paths: []string{"pub/late"}}, &control.PreloadResult{})
	programtest.MustRun(t, "umount", m.at) // which saves all sessions
	for key, want := range map[string]bool{
		"vault/worker-0.session": false, "vault/way/worker-0.session": false, "vault/none/worker-0.session": false, "new/dir/worker-0.session": true,
	} {
		if err := m.Get(programtest.TestBucket, key, new(strings.Builder)); (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
	}
	var kept strings.Builder
	if err := m.Get(programtest.TestBucket, "pub/worker-0.session", &kept); err == nil && strings.Contains(kept.String(), "pub/late") {
		t.Errorf("kept although the right was lost: %s", &kept)
	}
	_, m.at = m.mount(t)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(m.at, "new", "dir", "worker-0.session"), &st); err != nil || st.Uid != otherUser.uid || st.Mode&0o777 != 0o600 {
		t.Errorf("the session's file is of %d, mode %o: %v", st.Uid, st.Mode, err)
	}
}
