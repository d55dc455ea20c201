package systemtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// site is where programs run: a directory of a mount and one on the local disk with
// what they work on.
type site struct {
	t *testing.T
	// dir is on the mount, local beside it on the disk.
	dir, local string
	// attrs says that modes, times and links are kept.
	attrs bool
}

// run runs a program and returns what it printed.
func (s *site) run(name string, args ...string) string {
	s.t.Helper()
	out, err := s.try("", name, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a program with input.
func (s *site) try(input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	// A program on the mount is started by another: until exec(2) has read it, who
	// starts it stands still, and with it the server in this process (vfork).
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"--", name}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+s.local, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	cmd.Dir = s.local // fio leaves its state there
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// at returns a path on the mount.
func (s *site) at(name string) string { return filepath.Join(s.dir, name) }

// here returns a path on the local disk.
func (s *site) here(name string) string { return filepath.Join(s.local, name) }

// made is the time of all that source makes: what is kept are whole seconds.
var made = time.Unix(1_700_000_000, 0)

// source makes a tree with all that a file system has to keep.
func (s *site) source(name string) string {
	s.t.Helper()
	root := s.here(name)
	s.must(os.MkdirAll(filepath.Join(root, "sub/deep"), 0o755))
	for name, mode := range map[string]os.FileMode{
		"plain": 0o644, "sub/tool": 0o755, "sub/secret": 0o600, "sub/deep/fixed": 0o444, "sub/deep/awkward \n name": 0o640, "empty": 0o644,
	} {
		content := bytes.Repeat([]byte(name+"\n"), 1000)
		if name == "empty" {
			content = nil
		}
		path := filepath.Join(root, name)
		s.must(os.WriteFile(path, content, mode))
		s.must(os.Chmod(path, mode))
		s.must(os.Chtimes(path, made, made))
	}
	large := make([]byte, 9<<20)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	s.must(os.WriteFile(filepath.Join(root, "large"), large, 0o644))
	s.must(os.Chtimes(filepath.Join(root, "large"), made, made))
	if s.attrs {
		for link, target := range map[string]string{"relative": "sub/tool", "sub/up": "../plain", "absolute": "/usr/bin/python3", "nowhere": "none/at all"} {
			s.must(os.Symlink(target, filepath.Join(root, link)))
		}
	}
	s.must(os.Chmod(filepath.Join(root, "sub/deep"), 0o750))
	s.must(os.Chmod(filepath.Join(root, "sub"), 0o700))
	for _, dir := range []string{"sub/deep", "sub", "."} {
		s.must(os.Chtimes(filepath.Join(root, dir), made, made))
	}
	return root
}

// same fails unless two trees hold the same, with modes and times where those are
// kept.
func (s *site) same(want, got string) {
	s.t.Helper()
	if a, b := s.describe(want), s.describe(got); !slices.Equal(a, b) {
		for _, line := range a {
			if !slices.Contains(b, line) {
				s.t.Errorf("%s lacks %s", got, line)
			}
		}
		for _, line := range b {
			if !slices.Contains(a, line) {
				s.t.Errorf("%s has %s", got, line)
			}
		}
	}
}

// describe returns a line for everything below root.
func (s *site) describe(root string) (lines []string) {
	s.t.Helper()
	s.must(filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		line := fmt.Sprintf("%q %s", name, info.Mode().Type())
		switch {
		case info.IsDir() && s.attrs:
			line += fmt.Sprintf(" %s %d", info.Mode().Perm(), info.ModTime().Unix())
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " to " + target
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %08x", len(content), crc32.ChecksumIEEE(content))
			if s.attrs {
				line += fmt.Sprintf(" %s %d", info.Mode().Perm(), info.ModTime().Unix())
			}
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

// work is a program that a user runs on a mount: what it does, and what must be so
// afterwards, also in a mount that knows nothing but the bucket.
type work struct {
	name string
	// attrs says that it needs modes or times to be kept.
	attrs bool
	do    func(s *site)
	check func(s *site)
}

var programs = []work{
	{"git", false, gitClones, gitIsSound},
	{"sqlite", false, sqliteWrites, sqliteIsSound},
	{"shell", false, shellAppends, shellHasAppended},
	{"editor", false, editorsSave, editorsHaveSaved},
	{"fio", false, fioWrites, fioVerifies},
	{"cp -r", false, func(s *site) { s.run("cp", "-r", s.source("cp-r"), s.at("copy")) }, func(s *site) {
		if !s.attrs { // without -p the times are those of copying
			s.same(s.here("cp-r"), s.at("copy"))
		}
	}},
	{"cp -a", true, func(s *site) { s.run("cp", "-a", s.source("cp-a"), s.at("copy")) }, func(s *site) { s.same(s.here("cp-a"), s.at("copy")) }},
	{"tar", true, tarUnpacks, tarFindsTheSame},
	{"rsync", true, rsyncCopies, rsyncHasNothingToDo},
	{"xattr", true, xattrsAreCopied, xattrsAreThere},
	{"venv", true, venvIsMade, venvRuns},
}

// TestProgramsFindWhatTheyWrote runs them on a mount that was asked for nothing.
func TestProgramsFindWhatTheyWrote(t *testing.T) {
	t.Parallel()
	programsOn(t, "auto")
}

func TestProgramsFindWhatTheyWroteWithoutAttributes(t *testing.T) {
	t.Parallel()
	programsOn(t, "none")
}

// programsOn runs the programs on one mount, unmounts it, mounts the bucket again
// with an empty cache, and looks at what they left.
func programsOn(t *testing.T, attrs string) {
	t.Helper()
	w := newWorld(t)
	local := t.TempDir()
	each := func(f func(p work, s *site)) {
		for i, p := range programs {
			if p.attrs && attrs == "none" {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				name := fmt.Sprintf("%02d", i)
				s := &site{t: t, dir: filepath.Join(w.at, name), local: filepath.Join(local, name), attrs: attrs != "none"}
				f(p, s)
			})
		}
	}
	d := w.mount("--attrs=" + attrs)
	each(func(p work, s *site) {
		s.must(os.Mkdir(s.dir, 0o755))
		s.must(os.Mkdir(s.local, 0o755))
		p.do(s)
		p.check(s)
	})
	d.stop()
	if t.Failed() {
		return
	}
	w.cache = filepath.Join(t.TempDir(), "fresh")
	d = w.mount("--attrs=" + attrs)
	each(func(p work, s *site) { p.check(s) })
	lookAtAll(t, w.at)
	d.stop()
	if attrs == "none" || t.Failed() {
		return
	}
	// What was asked once is remembered, but for directories.
	before := w.Requests("HeadObject")
	d = w.mount("--attrs=" + attrs)
	directories := lookAtAll(t, w.at)
	if n := w.Requests("HeadObject") - before; n > int64(directories)+2 {
		t.Errorf("%d HEADs for a tree of %d directories that was known", n, directories)
	}
	d.stop()
}

// lookAtAll looks at everything below root, and returns how many directories there
// are.
func lookAtAll(t *testing.T, root string) (directories int) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			directories++
		}
		if err == nil {
			_, err = os.Lstat(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return directories
}

func gitClones(s *site) {
	origin := s.here("origin")
	s.run("git", "init", "-q", "-b", "main", origin)
	for i := range 3 {
		for j := range 20 {
			s.must(os.MkdirAll(filepath.Join(origin, fmt.Sprint("dir", j%4)), 0o755))
			s.must(os.WriteFile(filepath.Join(origin, fmt.Sprintf("dir%d/file%d", j%4, j)), bytes.Repeat([]byte{byte('a' + i)}, 100*j), 0o644))
		}
		if s.attrs {
			s.must(os.WriteFile(filepath.Join(origin, "tool"), []byte("#!/bin/sh\n"), 0o755))
			_ = os.Remove(filepath.Join(origin, "link")) // of the round before
			s.must(os.Symlink(fmt.Sprint("dir", i), filepath.Join(origin, "link")))
		}
		s.run("git", "-C", origin, "add", "-A")
		s.run("git", "-C", origin, "commit", "-q", "-m", fmt.Sprint("commit ", i))
	}
	s.run("git", "-C", origin, "update-server-info")
	server := httptest.NewServer(http.FileServer(http.Dir(s.local)))
	defer server.Close()
	for name, from := range map[string]string{"path": origin, "file": "file://" + origin, "http": server.URL + "/origin/.git"} {
		s.run("git", "clone", "-q", from, s.at(name))
	}
	work := s.at("path")
	s.must(os.WriteFile(filepath.Join(work, "dir1/new"), []byte("new\n"), 0o644))
	s.run("git", "-C", work, "add", "-A")
	s.run("git", "-C", work, "commit", "-q", "-m", "on the mount")
	s.run("git", "-C", work, "gc", "-q")
}

func gitIsSound(s *site) {
	for name, commits := range map[string]string{"path": "4", "file": "3", "http": "3"} {
		s.run("git", "-C", s.at(name), "fsck", "--full", "--strict")
		if out := s.run("git", "-C", s.at(name), "status", "--porcelain"); out != "" {
			s.t.Errorf("%s has changed:\n%s", name, out)
		}
		if out := s.run("git", "-C", s.at(name), "rev-list", "--count", "HEAD"); strings.TrimSpace(out) != commits {
			s.t.Errorf("%s has %s commits", name, out)
		}
	}
}

func sqliteWrites(s *site) {
	var script strings.Builder
	script.WriteString("PRAGMA journal_mode=DELETE;\nCREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);\nCREATE INDEX i ON t(v);\n")
	for i := range 40 {
		script.WriteString("BEGIN;\n")
		for j := range 50 {
			fmt.Fprintf(&script, "INSERT INTO t VALUES(%d,'%040d');\n", i*50+j, (i*7919+j*104729)%1000003)
		}
		fmt.Fprintf(&script, "DELETE FROM t WHERE id %% 9 = %d;\n%s;\n", i%9, []string{"COMMIT", "ROLLBACK"}[i%5/4])
	}
	script.WriteString("VACUUM;\n")
	for _, db := range []string{s.at("db"), s.here("db")} {
		if out, err := s.try(script.String(), "sqlite3", "-bail", db); err != nil {
			s.t.Fatalf("sqlite3 %s: %v: %s", db, err, out)
		}
	}
}

func sqliteIsSound(s *site) {
	if out := s.run("sqlite3", s.at("db"), "PRAGMA integrity_check"); strings.TrimSpace(out) != "ok" {
		s.t.Errorf("the database is damaged: %s", out)
	}
	if s.run("sqlite3", s.at("db"), ".dump") != s.run("sqlite3", s.here("db"), ".dump") {
		s.t.Error("the database does not hold what it does on a disk")
	}
}

const appended = 200

func shellAppends(s *site) {
	s.run("sh", "-c", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i" >>"$0"; i=$((i+1)); done`, appended), s.at("reopened.log"))
	s.run("sh", "-c", fmt.Sprintf(`exec >>"$0"; i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); done`, appended), s.at("open.log"))
}

func shellHasAppended(s *site) {
	var want strings.Builder
	for i := range appended {
		fmt.Fprintln(&want, "line", i)
	}
	for _, name := range []string{"reopened.log", "open.log"} {
		if got, err := os.ReadFile(s.at(name)); err != nil || string(got) != want.String() {
			s.t.Errorf("%s holds %d bytes, %v", name, len(got), err)
		}
	}
}

func editorsSave(s *site) {
	for i := range 3 {
		// As editors save: a new file beside it, synced, renamed over it.
		f, err := os.OpenFile(s.at(".saved.swp"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		s.must(err)
		_, err = fmt.Fprintln(f, "version", i)
		s.must(err)
		s.must(f.Sync())
		s.must(f.Close())
		s.must(os.Rename(s.at(".saved.swp"), s.at("saved")))
	}
	for i := range 2 {
		if out, err := s.try(fmt.Sprintf("a\nline %d\n.\nw\nq\n", i), "ed", "-s", s.at("ed")); err != nil && i > 0 {
			s.t.Fatalf("ed: %v: %s", err, out)
		}
	}
	for i := range 2 {
		if out, err := s.try(fmt.Sprintf("$a\nline %d\n.\nwq\n", i), "vi", "-u", "NONE", "-es", s.at("vi")); err != nil {
			s.t.Fatalf("vi: %v: %s", err, out)
		}
	}
}

func editorsHaveSaved(s *site) {
	for name, want := range map[string]string{"saved": "version 2\n", "ed": "line 0\nline 1\n", "vi": "line 0\nline 1\n"} {
		if got, err := os.ReadFile(s.at(name)); err != nil || string(got) != want {
			s.t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	left, err := os.ReadDir(s.dir)
	s.must(err)
	if len(left) != 3 {
		s.t.Errorf("the editors left %v", left)
	}
}

func fioArgs(s *site) []string {
	return []string{
		"--name=verify", "--directory=" + s.dir, "--size=12m", "--rw=randwrite", "--bsrange=1k-64k", "--verify=crc32c", "--ioengine=psync",
		"--end_fsync=1", "--randseed=7", "--allrandrepeat=1", "--verify_fatal=1", "--numjobs=2", "--output-format=terse",
	}
}

func fioWrites(s *site) { s.run("fio", append(fioArgs(s), "--do_verify=1")...) }

func fioVerifies(s *site) { s.run("fio", append(fioArgs(s), "--verify_only=1")...) }

func tarUnpacks(s *site) {
	s.run("tar", "-C", s.source("tar"), "-cf", s.here("archive.tar"), ".")
	s.must(os.Mkdir(s.at("tree"), 0o755))
	s.run("tar", "-C", s.at("tree"), "-xpf", s.here("archive.tar"))
}

func tarFindsTheSame(s *site) {
	s.same(s.here("tar"), s.at("tree"))
	s.run("tar", "-C", s.at("tree"), "-cf", s.here("again.tar"), ".")
	s.must(os.MkdirAll(s.here("again"), 0o755))
	s.run("tar", "-C", s.here("again"), "-xpf", s.here("again.tar"))
	s.same(s.here("tar"), s.here("again"))
}

func rsyncCopies(s *site) {
	s.run("rsync", "-a", s.source("rsync")+"/", s.at("tree"))
}

// rsyncHasNothingToDo: directories have no times of their own.
func rsyncHasNothingToDo(s *site) {
	s.same(s.here("rsync"), s.at("tree"))
	if out := s.run("rsync", "-aiO", s.here("rsync")+"/", s.at("tree")); out != "" {
		s.t.Errorf("rsync does not find everything as it was:\n%s", out)
	}
}

// xattrsAreCopied gives extended attributes to files of the mount, and copies them there with
// each program that can.
func xattrsAreCopied(s *site) {
	s.run("cp", "-a", s.source("xattr"), s.at("tree"))
	s.run("setfattr", "-n", "user.comment", "-v", "of plain", s.at("tree/plain"))
	s.run("setfattr", "-n", "user.binary", "-v", "0x00ff22250a", s.at("tree/plain"))
	s.run("setfattr", "-n", "user.empty", s.at("tree/sub/tool"))
	s.run("setfattr", "-n", "user.large", "-v", strings.Repeat("x", 4000), s.at("tree/large"))
	s.run("cp", "-r", "--preserve=all,xattr", s.at("tree"), s.at("cp"))
	s.run("rsync", "-aX", s.at("tree")+"/", s.at("rsync"))
	s.run("tar", "--xattrs", "-C", s.at("tree"), "-cf", s.here("xattr.tar"), ".")
	s.must(os.Mkdir(s.at("tar"), 0o755))
	s.run("tar", "--xattrs", "-C", s.at("tar"), "-xpf", s.here("xattr.tar"))
	s.must(os.Rename(s.at("tree/plain"), s.at("tree/renamed")))
	s.must(os.WriteFile(s.at("tree/renamed"), []byte("written again"), 0o644))
}

func xattrsAreThere(s *site) {
	plain := "user.binary=0sAP8iJQo=\nuser.comment=0sb2YgcGxhaW4=\n\n"
	for _, tree := range []string{"tree", "cp", "rsync", "tar"} {
		want := map[string]string{
			"plain": plain, "sub/tool": "user.empty=0s\n\n", "empty": "",
			"large": "user.large=0s" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{'x'}, 4000)) + "\n\n",
		}
		if tree == "tree" {
			delete(want, "plain")
			want["renamed"] = plain
		}
		for name, want := range want {
			if got := s.run("getfattr", "--absolute-names", "-d", "-e", "base64", s.at(tree+"/"+name)); strings.TrimPrefix(got, "# file: "+s.at(tree+"/"+name)+"\n") != want {
				s.t.Errorf("%s/%s has %q, want %q", tree, name, got, want)
			}
		}
	}
	if out := s.run("rsync", "-aXiO", s.at("cp")+"/", s.at("tar")); out != "" {
		s.t.Errorf("rsync does not find everything as it was:\n%s", out)
	}
}

func venvIsMade(s *site) {
	s.run("/usr/bin/python3", "-m", "venv", "--without-pip", s.at("venv"))
	found, err := filepath.Glob(s.at("venv/lib/python3*/site-packages"))
	s.must(err)
	if len(found) != 1 {
		s.t.Fatalf("the environment has %v", found)
	}
	s.must(os.WriteFile(filepath.Join(found[0], "ours.py"), []byte("import sys\ndef where():\n    return sys.prefix\n"), 0o644))
	// Who is started while it is open for writing has it open too, for a moment, and it cannot
	// be run as long.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	s.must(os.WriteFile(s.at("venv/bin/tool"), []byte("#!"+s.at("venv/bin/python")+"\nimport ours\nprint(ours.where())\n"), 0o755))
}

func venvRuns(s *site) {
	if out := s.run(s.at("venv/bin/tool")); strings.TrimSpace(out) != s.at("venv") {
		s.t.Errorf("it printed %q", out)
	}
	if target, err := os.Readlink(s.at("venv/bin/python3")); err != nil || target != "/usr/bin/python3" {
		s.t.Errorf("its interpreter is %q, %v", target, err)
	}
}
