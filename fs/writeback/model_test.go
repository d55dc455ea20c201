package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/manifest"
)

// modelFile is what a file should be.
type modelFile struct {
	// content is what reads return, committed what the last close left, if ever there
	// was one.
	content, committed string
	ever               bool
	// dirty says that content was changed since; history is what it was meanwhile.
	dirty   bool
	history []string
	// tag is an extended attribute.
	tag string
	// set says that it has a mode, and mtime is the time that it was given since it was
	// written last, in seconds; 0 if that is not known.
	set   bool
	mode  uint32
	mtime int64
}

// change is a write to an open file, which may be committed at any time.
func (f *modelFile) change(content string) {
	f.content, f.dirty, f.mtime = content, true, 0
	f.history = append(f.history, content)
}

// close is a commit.
func (f *modelFile) close() {
	f.committed, f.ever, f.dirty, f.history = f.content, true, false, nil
}

// mixed reports whether got has, byte by byte, something that the file had since its last
// commit, or then.
func (f *modelFile) mixed(got string) bool {
	if !f.ever {
		return false
	}
	all := append([]string{f.committed, f.content}, f.history...)
	if !slices.ContainsFunc(all, func(s string) bool { return len(s) == len(got) }) {
		return false
	}
	for i := range len(got) {
		// A file that was cut may be longer again.
		if got[i] != 0 && !slices.ContainsFunc(all, func(s string) bool { return i < len(s) && s[i] == got[i] }) {
			return false
		}
	}
	return true
}

// program is one process that works below a directory of its own, and knows what
// should be there.
type program struct {
	w    *world
	rand *rand.Rand
	root string
	// files and dirs are by their path below root; "" is root itself.
	files map[string]*modelFile
	dirs  map[string]bool
	open  []*openFile
	log   []string
	err   error
	// tags says that files are given extended attributes.
	tags bool
	// partial says that large objects are not fetched to be written to: of what was not
	// closed a crash takes some, as the loss of power does.
	partial bool
}

type openFile struct {
	h *Handle
	f *modelFile
}

func (p *program) abs(path string) string { return order.Join(p.root, path) }

// split returns the space's directory and name of a path.
func (p *program) split(path string) (dir, base string) {
	all := p.abs(path)
	return order.Parent(all), all[strings.LastIndexByte(all, '/')+1:]
}

var names = []string{"a", "b", "c", "d", "e.tmp", ".f", "g"}

// anyPath returns a path that may exist or not.
func (p *program) anyPath() string {
	dirs := slices.Sorted(maps.Keys(p.dirs))
	dir := dirs[p.rand.IntN(len(dirs))]
	if strings.Count(dir, "/") > 1 {
		dir = ""
	}
	return order.Join(dir, names[p.rand.IntN(len(names))])
}

// somePath returns a path of a file, if there are any.
func (p *program) somePath() string {
	if len(p.files) == 0 || p.rand.IntN(8) == 0 {
		return p.anyPath()
	}
	all := slices.Sorted(maps.Keys(p.files))
	return all[p.rand.IntN(len(all))]
}

func (p *program) text() string {
	n := p.rand.IntN(40)
	if p.rand.IntN(4) == 0 {
		n = p.rand.IntN(400)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + p.rand.IntN(26))
	}
	return string(b)
}

func (p *program) say(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *program) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s\n  %s", p.root, fmt.Sprintf(format, args...), strings.Join(p.log, "\n  "))
	}
}

// expect compares an error with what should have happened.
func (p *program) expect(what string, err, want error) bool {
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		p.fail("%s: error is %v, want %v\n%s", what, err, want, p.w.dump())
	}
	return err == nil && want == nil
}

// childOf reports whether there is anything below path.
func (p *program) childOf(path string) bool {
	for other := range p.files {
		if strings.HasPrefix(other, path+"/") {
			return true
		}
	}
	for other := range p.dirs {
		if strings.HasPrefix(other, path+"/") {
			return true
		}
	}
	return false
}

func (p *program) step() {
	ctx := p.w.Context()
	switch p.rand.IntN(20) {
	case 0, 1, 2, 3:
		p.create(p.anyPath())
	case 4, 5:
		p.edit(p.somePath())
	case 6:
		p.use()
	case 7:
		path, size := p.somePath(), int64(p.rand.IntN(60))
		p.say("truncate %s %d", path, size)
		dir, base := p.split(path)
		_, err := p.w.space.SetAttr(ctx, dir, base, SetAttr{Size: &size})
		f := p.files[path]
		switch {
		case p.dirs[path]:
			p.expect("truncate", err, syscall.EISDIR)
		case f == nil:
			p.expect("truncate", err, fs.ErrNotExist)
		case p.expect("truncate", err, nil):
			f.content = (f.content + strings.Repeat("\x00", 60))[:size]
			f.change(f.content)
			if !slices.ContainsFunc(p.open, func(o *openFile) bool { return o.f == f }) {
				f.close()
			}
		}
	case 8, 9, 10:
		p.rename(p.somePath(), p.anyPath())
	case 11:
		if dirs := slices.Sorted(maps.Keys(p.dirs)); len(dirs) > 1 {
			p.rename(dirs[1+p.rand.IntN(len(dirs)-1)], p.anyPath())
		}
	case 12, 13:
		path := p.somePath()
		p.say("unlink %s", path)
		dir, base := p.split(path)
		err := p.w.space.Unlink(ctx, dir, base)
		switch {
		case p.dirs[path]:
			p.expect("unlink", err, syscall.EISDIR)
		case p.files[path] == nil:
			p.expect("unlink", err, fs.ErrNotExist)
		case p.expect("unlink", err, nil):
			delete(p.files, path)
		}
	case 14:
		path := p.anyPath()
		p.say("mkdir %s", path)
		dir, base := p.split(path)
		err := p.w.space.Mkdir(ctx, dir, base, SetAttr{})
		if p.dirs[path] || p.files[path] != nil {
			p.expect("mkdir", err, fs.ErrExist)
		} else if p.expect("mkdir", err, nil) {
			p.dirs[path] = true
		}
	case 15:
		path := p.anyPath()
		p.say("rmdir %s", path)
		dir, base := p.split(path)
		err := p.w.space.Rmdir(ctx, dir, base)
		switch {
		case p.files[path] != nil:
			p.expect("rmdir", err, syscall.ENOTDIR)
		case !p.dirs[path]:
			p.expect("rmdir", err, fs.ErrNotExist)
		case p.childOf(path):
			p.expect("rmdir", err, syscall.ENOTEMPTY)
		case p.expect("rmdir", err, nil):
			delete(p.dirs, path)
		}
	case 16:
		p.look(p.anyPath())
	case 17:
		dirs := slices.Sorted(maps.Keys(p.dirs))
		p.list(dirs[p.rand.IntN(len(dirs))])
	case 18:
		if p.tags {
			p.tag(p.somePath())
			p.setAttr(p.somePath())
			return
		}
		fallthrough
	default:
		time.Sleep(time.Duration(p.rand.IntN(3000)) * time.Millisecond)
	}
}

// tag gives a file an extended attribute, or takes it away.
func (p *program) tag(path string) {
	change := SetXAttr{Name: "user.tag", Value: []byte(p.text()), Remove: p.rand.IntN(4) == 0}
	p.say("tag %s %q remove=%v", path, change.Value, change.Remove)
	dir, base := p.split(path)
	_, err := p.w.space.SetAttr(p.w.Context(), dir, base, SetAttr{XAttr: &change})
	f := p.files[path]
	switch {
	case p.dirs[path]:
		p.expect("tag", err, syscall.ENOTSUP)
	case f == nil:
		p.expect("tag", err, fs.ErrNotExist)
	case change.Remove && f.tag == "":
		p.expect("tag", err, syscall.ENODATA)
	case p.expect("tag", err, nil):
		if f.tag = "user.tag=" + string(change.Value); change.Remove {
			f.tag = ""
		}
	}
}

// tagOf returns what tag gave, as metadata says.
func tagOf(text string) string {
	value, ok := XAttrValue(text, "user.tag")
	if !ok {
		return ""
	}
	return "user.tag=" + string(value)
}

// setAttr changes the mode or the time of a file.
func (p *program) setAttr(path string) {
	f := p.files[path]
	if f == nil {
		return
	}
	dir, base := p.split(path)
	var a SetAttr
	switch n := p.rand.IntN(3); {
	case n == 0:
		mode := uint32(p.rand.IntN(0o1000))
		a.Mode = &mode
	case slices.ContainsFunc(p.open, func(o *openFile) bool { return o.f == f }):
		return
	default:
		at := time.Unix(1_000_000_000+p.rand.Int64N(1_000_000), 0)
		a.Mtime = &at
	}
	p.say("set the attributes of %s: mode %v, time %v", path, a.Mode != nil, a.Mtime)
	_, err := p.w.space.SetAttr(p.w.Context(), dir, base, a)
	if !p.expect("setattr", err, nil) {
		return
	}
	if a.Mode != nil {
		f.set, f.mode = true, *a.Mode
	}
	if a.Mtime != nil {
		f.mtime = a.Mtime.Unix()
	}
}

// hasAttributes compares the metadata of the objects with what was set.
func (p *program) hasAttributes() {
	for path, f := range p.files {
		meta := p.w.metaAt("p/" + p.abs(path))
		if f.set && meta["mode"] != fmt.Sprint(0o100000|f.mode) {
			p.fail("%s has the mode %q, want %d", path, meta["mode"], 0o100000|f.mode)
		}
		if f.mtime != 0 && meta["mtime"] != fmt.Sprint(f.mtime) {
			p.fail("%s has the time %q, want %d", path, meta["mtime"], f.mtime)
		}
	}
}

func (p *program) create(path string) {
	p.say("create %s", path)
	dir, base := p.split(path)
	h, err := p.w.space.Create(p.w.Context(), dir, base, CreateOptions{})
	if p.dirs[path] || p.files[path] != nil {
		p.expect("create", err, fs.ErrExist)
		return
	}
	if !p.expect("create", err, nil) {
		return
	}
	f := &modelFile{set: true}
	f.change("")
	p.files[path] = f
	p.put(&openFile{h, f})
}

// edit opens an existing file for writing.
func (p *program) edit(path string) {
	dir, base := p.split(path)
	truncate := p.rand.IntN(3) == 0
	p.say("open %s truncate=%v", path, truncate)
	h, err := p.w.space.Open(p.w.Context(), dir, base, OpenOptions{Write: true, Truncate: truncate})
	f := p.files[path]
	switch {
	case p.dirs[path]:
		p.expect("open", err, syscall.EISDIR)
		return
	case f == nil:
		p.expect("open", err, fs.ErrNotExist)
		return
	case !p.expect("open", err, nil):
		return
	}
	if truncate {
		f.change("")
	}
	p.put(&openFile{h, f})
}

// put writes to an open file, and closes it mostly.
func (p *program) put(o *openFile) {
	for range p.rand.IntN(3) {
		text := p.text()
		off := p.rand.IntN(len(o.f.content) + 1)
		if p.rand.IntN(3) == 0 {
			// Parts of what is there are sent meanwhile.
			time.Sleep(time.Duration(p.rand.IntN(500)) * time.Millisecond)
		}
		if len(text) == 0 {
			continue
		}
		p.write(o, text, off)
	}
	switch p.rand.IntN(5) {
	case 0:
		p.say("  leave it open")
		p.open = append(p.open, o)
	case 1:
		p.say("  fsync, close")
		p.expect("fsync", o.h.Sync(p.w.Context()), nil)
		p.close(o)
	default:
		p.say("  close")
		p.close(o)
	}
}

func (p *program) write(o *openFile, text string, off int) {
	p.say("  write %q at %d", text[:min(len(text), 8)], off)
	if p.rand.IntN(2) == 0 || o.h.File().Partial() {
		_, err := o.h.WriteAt(p.w.Context(), []byte(text), int64(off))
		p.expect("write", err, nil)
	} else {
		// As the kernel does in passthrough.
		file, err := os.OpenFile(o.h.OSFile().Name(), os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteAt([]byte(text), int64(off))
			err = errors.Join(err, file.Close())
		}
		p.expect("write", err, nil)
	}
	o.f.change(o.f.content[:off] + text + o.f.content[min(off+len(text), len(o.f.content)):])
}

// grow adds to an open file from time to time, as programs do with their logs.
func (p *program) grow(o *openFile) {
	for range 3 + p.rand.IntN(4) {
		if text := p.text(); text != "" {
			p.write(o, text, len(o.f.content))
		}
		time.Sleep(time.Duration(1+p.rand.IntN(5000)) * time.Millisecond)
	}
}

func (p *program) close(o *openFile) {
	p.expect("close", o.h.Flush(p.w.Context()), nil)
	o.h.Release()
	o.f.close()
}

// use goes on with an open file.
func (p *program) use() {
	if len(p.open) == 0 {
		return
	}
	i := p.rand.IntN(len(p.open))
	o := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	p.say("use an open file")
	if p.rand.IntN(2) == 0 {
		p.grow(o)
	}
	p.put(o)
}

func (p *program) closeAll() {
	for _, o := range p.open {
		p.say("close an open file")
		p.close(o)
	}
	p.open = nil
}

func (p *program) rename(from, to string) {
	p.say("rename %s %s", from, to)
	if f := p.files[from]; f != nil && !f.ever && p.files[to] != nil {
		p.say("  not now")
		return
	}
	dir, base := p.split(from)
	newDir, newBase := p.split(to)
	_, err := p.w.space.Rename(p.w.Context(), dir, base, newDir, newBase, 0)
	isDir := p.dirs[from]
	switch {
	case !isDir && p.files[from] == nil:
		p.expect("rename", err, fs.ErrNotExist)
		return
	case from == to:
		p.expect("rename", err, nil)
		return
	case isDir && p.files[to] != nil:
		p.expect("rename", err, syscall.ENOTDIR)
		return
	case !isDir && p.dirs[to]:
		p.expect("rename", err, syscall.EISDIR)
		return
	case isDir && strings.HasPrefix(to, from+"/"):
		p.expect("rename", err, syscall.EINVAL)
		return
	case isDir && p.dirs[to] && p.childOf(to):
		p.expect("rename", err, syscall.ENOTEMPTY)
		return
	case !p.expect("rename", err, nil):
		return
	}
	if !isDir {
		p.files[to] = p.files[from]
		delete(p.files, from)
		return
	}
	for path, f := range maps.Clone(p.files) {
		if strings.HasPrefix(path, from+"/") {
			delete(p.files, path)
			p.files[to+path[len(from):]] = f
		}
	}
	for path := range maps.Clone(p.dirs) {
		if path == from || strings.HasPrefix(path, from+"/") {
			delete(p.dirs, path)
			p.dirs[to+path[len(from):]] = true
		}
	}
}

func (p *program) look(path string) {
	p.say("look at %s", path)
	dir, base := p.split(path)
	e, _, err := p.w.space.Lookup(p.w.Context(), dir, base)
	f := p.files[path]
	switch {
	case p.dirs[path]:
		if p.expect("lookup", err, nil) && e.Kind != manifest.Directory {
			p.fail("%s is %v, want a directory", path, e.Kind)
		}
	case f == nil:
		p.expect("lookup", err, fs.ErrNotExist)
	case p.expect("lookup", err, nil):
		text := manifest.XAttrs(e.Attr)
		if e.File != nil {
			text, _ = e.File.XAttrs()
		}
		if tagOf(text) != f.tag {
			p.fail("%s is tagged %q, want %q", path, tagOf(text), f.tag)
		}
		got, err := p.w.readEntry(e)
		if err != nil || got != f.content {
			state := ""
			if e.File != nil {
				state = fmt.Sprintf("%+v", e.File.known())
			}
			p.fail("%s holds %q, %v, want %q\n%+v %s\n%s", path, got, err, f.content, e.Entry, state, p.w.dump())
		}
	}
}

func (p *program) list(path string) {
	p.say("list %q", path)
	want := make(map[string]bool)
	for _, all := range []([]string){slices.Collect(maps.Keys(p.files)), slices.Collect(maps.Keys(p.dirs))} {
		for _, other := range all {
			if other != "" && order.Parent(other) == path && (path != "" || !strings.Contains(other, "/")) {
				want[other[strings.LastIndexByte(other, '/')+1:]] = true
			}
		}
	}
	got := make(map[string]bool)
	after := ""
	for {
		page, _, err := p.w.space.ReadDir(p.w.Context(), p.abs(path), after, 1+p.rand.IntN(4))
		if err != nil {
			p.fail("list %q: %v", path, err)
			return
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if got[e.Name] {
				p.fail("list %q: %s comes twice", path, e.Name)
			}
			got[e.Name] = true
		}
		after = page[len(page)-1].Cursor
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.fail("list %q (-want +got):\n%s\n%s", path, diff, p.w.dump())
	}
}

// dump tells what the space and the bucket have.
func (w *world) dump() string {
	var b strings.Builder
	w.space.mu.Lock()
	defer w.space.mu.Unlock()
	fmt.Fprintf(&b, "names %v\n", w.space.mu.Names)
	for key, k := range w.space.mu.Keys {
		fmt.Fprintf(&b, "key %s %+v\n", key, *k)
	}
	for key, content := range w.inBucket() {
		fmt.Fprintf(&b, "bucket %s %q\n", key, content)
	}
	return b.String()
}

// check looks at everything.
func (p *program) check() {
	for path := range p.dirs {
		p.list(path)
	}
	for path := range p.files {
		p.look(path)
	}
}

// killed changes the model to what a crash leaves of uncommitted changes. What the
// mount shows decides where both are right.
func (p *program) killed() {
	p.say("--- crash")
	for path, f := range maps.Clone(p.files) {
		if !f.dirty {
			continue
		}
		dir, base := p.split(path)
		e, _, err := p.w.space.Lookup(p.w.Context(), dir, base)
		if !f.ever && errors.Is(err, fs.ErrNotExist) {
			delete(p.files, path)
			continue
		}
		if !p.expect("lookup", err, nil) {
			return
		}
		got, err := p.w.readEntry(e)
		known := got == f.content || f.ever && got == f.committed || slices.Contains(f.history, got) || p.partial && f.mixed(got)
		if err != nil || !known {
			p.fail("after a crash %s holds %q, %v, want %q, %q or one of %q", path, got, err, f.content, f.committed, f.history)
		}
		f.content, f.mtime = got, 0
		f.close()
	}
	p.open = nil
}

// runModel runs programs beside each other in a world of its own, and compares what
// the bucket holds in the end with what it should.
// It returns how many bytes were sent before the file was closed.
func runModel(t *testing.T, seed uint64, crashes bool) (early int64) {
	w := newWorldWith(t, seed, func(c *Config) {
		l := usualLimits
		l.inline, l.small, l.part, l.growth, l.base, l.copy, l.copyPart, l.journal = 30, 100, 40, 3, 50, 150, 50, 4000
		if seed%3 > 0 {
			l.whole, l.chunk = 1+int64(seed%7)*20, 1+int64(seed%5)*9
		}
		c.limits = &l
		c.Attrs = seed%4 == 1 || seed%4 == 2
	})
	r := w.rand
	var programs []*program
	for i := range 1 + r.IntN(3) {
		p := &program{
			w: w, rand: rand.New(rand.NewPCG(seed, uint64(10+i))), root: fmt.Sprintf("p%d", i),
			files: make(map[string]*modelFile), dirs: map[string]bool{"": true},
			partial: seed%3 > 0, tags: w.cfg.Attrs,
		}
		p.w.store.put("p/"+p.root+"/", "")
		for _, path := range []string{"a", "b", "d/x", "d/y", "d/z/w"} {
			if p.rand.IntN(2) == 0 {
				text := p.text()
				w.store.put("p/"+p.abs(path), text)
				p.files[path] = &modelFile{content: text, committed: text, ever: true}
				for dir := order.Parent(path); dir != ""; dir = order.Parent(dir) {
					p.dirs[dir] = true
				}
			}
		}
		programs = append(programs, p)
	}
	faults := []float64{0, 0.02, 0.2}[r.IntN(3)]
	w.store.Lock()
	w.store.faults = faults
	w.store.Unlock()
	fail := func() {
		for _, p := range programs {
			if p.err != nil {
				t.Fatalf("seed %d: %v", seed, p.err)
			}
		}
	}
	for range 4 {
		var running sync.WaitGroup
		for _, p := range programs {
			running.Go(func() {
				for range 15 {
					if p.err == nil {
						p.step()
						w.checkCounters()
					}
				}
			})
		}
		running.Wait()
		fail()
		w.checkJournal()
		synctest.Wait()
		w.checkUsage()
		if crashes && r.IntN(2) == 0 {
			w.crash(false)
			for _, p := range programs {
				p.killed()
			}
		}
		for _, p := range programs {
			p.check()
		}
		fail()
	}
	want := make(map[string]string)
	for _, p := range programs {
		p.closeAll()
		for path, f := range p.files {
			want["p/"+p.abs(path)] = f.content
		}
	}
	w.store.Lock()
	w.store.faults = 0
	w.store.Unlock()
	w.drain()
	got := w.inBucket()
	for key := range maps.Clone(got) {
		if strings.HasSuffix(key, "/") {
			p := programs[int(key[3]-'0')]
			if !p.dirs[strings.TrimSuffix(strings.TrimPrefix(key, "p/"+p.root+"/"), "/")] {
				t.Errorf("seed %d: the marker %s is left over", seed, key)
			}
			delete(got, key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		for _, p := range programs {
			t.Log(strings.Join(p.log, "\n"))
		}
		t.Fatalf("seed %d: bucket (-want +got):\n%s", seed, diff)
	}
	for _, p := range programs {
		for path, f := range p.files {
			if got := tagOf(w.metaAt("p/" + p.abs(path))["xattr"]); got != f.tag {
				t.Errorf("seed %d: %s is tagged %q, want %q\n  %s", seed, path, got, f.tag, strings.Join(p.log, "\n  "))
			}
		}
	}
	if w.cfg.Attrs {
		for _, p := range programs {
			p.hasAttributes()
		}
		fail()
	}
	// In time the names are the base tree's again.
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	for _, p := range programs {
		p.check()
	}
	fail()
	w.space.mu.Lock()
	left := len(w.space.mu.Names) + len(w.space.mu.Files) + len(w.space.mu.Keys) + len(w.space.mu.Uploads) + len(w.space.mu.runs)
	about := fmt.Sprintf("%v %v %v %v", w.space.mu.Names, w.space.mu.Files, w.space.mu.Keys, w.space.mu.Uploads)
	for n, x := range w.space.mu.settling.names {
		about += fmt.Sprintf("\nsettling %v %+v synced %d end %d", n, *x, w.space.journal.Synced(), w.space.journal.End())
	}
	w.space.mu.Unlock()
	if left > 0 {
		t.Errorf("seed %d: %d things are remembered although all is published: %s", seed, left, about)
	}
	w.store.Lock()
	uploads := len(w.store.uploads)
	w.store.Unlock()
	early = w.space.mu.stats.early
	if uploads > 0 {
		t.Errorf("seed %d: %d uploads are left", seed, uploads)
	}
	w.stop()
	if staged, err := os.ReadDir(w.cfg.Dir + "/staged"); err != nil || len(staged) > 0 {
		t.Errorf("seed %d: %d staged files are left, %v", seed, len(staged), err)
	}
	return early
}

func TestModel(t *testing.T) {
	early := int64(0)
	for seed := range modelSeeds() {
		bubble(t, func(t *testing.T) { early += runModel(t, seed, seed%2 == 0) })
		if t.Failed() {
			return
		}
	}
	if early == 0 {
		t.Error("nothing was sent before its file was closed")
	}
}

// modelSeeds returns the seeds to try: a few, or those of PAILFS_MODEL_SEEDS=FROM-TO,
// TO not included.
func modelSeeds() func(yield func(uint64) bool) { return seedsTo(40) }

// orderSeeds returns fewer of them: each has twice the steps.
func orderSeeds() func(yield func(uint64) bool) { return seedsTo(12) }

func seedsTo(to uint64) func(yield func(uint64) bool) {
	from := uint64(0)
	if s := os.Getenv("PAILFS_MODEL_SEEDS"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &from, &to); err != nil {
			panic(fmt.Sprintf("PAILFS_MODEL_SEEDS=%q is not FROM-TO", s))
		}
	}
	return func(yield func(uint64) bool) {
		for seed := from; seed < to; seed++ {
			if !yield(seed) {
				return
			}
		}
	}
}
