package systemtest

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// lasting is a load of which only what fsync accepted, or status called durable, has to be there
// after the disk lost what it had not written.
func (r *round) lasting() *load {
	l := newLoad(r.w)
	l.durable = true
	l.trainers(2)
	l.editors(r.rng, 1, 1, 24<<20, 48<<20)
	l.appenders(r.rng, 1)
	return l
}

// power: the power is lost at a random instant, and with it what the disk had not yet taken. What
// fsync accepted, and what status called durable, is in the bucket once the next mount has
// drained, or at least in the mount where it has to wait for what is lost. Latest names nothing
// that is not there.
func (r *round) power() {
	w := r.w
	disk := newPowerDisk(r.t, 256)
	w.cache = disk.cache
	l := r.lasting()
	w.faults(slowUploads()...)
	sure := r.seed%4 == 0
	if sure {
		l.promised.rested = make(chan struct{})
	}
	d := w.mount("--upload-bandwidth=20MiB")
	l.start()
	if sure { // however slow the disk is, status calls what trainers have left alone durable
		until(func() bool { l.promised.vouch(d); _, latest := l.promised.kept(); return len(latest) > 0 })
		close(l.promised.rested)
	}
	for end := time.Now().Add(300*time.Millisecond + r.milliseconds(1500)); time.Now().Before(end); {
		l.promised.vouch(d)
	}
	// Nothing reaches the bucket any more; then the disk stands still.
	w.faults(ossemu.Fault{Kind: ossemu.FaultReset})
	if sure { // something is promised that is not in the bucket
		r.cut(l)
	}
	state := l.snapshot()
	image := disk.losePower()
	r.report.PowerLosses++
	d.kill()
	l.ended()
	r.unmount()
	w.ordered("when power was lost")
	w.bootFrom(image, int(r.seed%3))
	r.recovered(l, state)
}

// recovered mounts what the disk had and fails unless it has what was safe then.
func (r *round) recovered(l *load, then snapshot) {
	w := r.w
	r.report.Pending = then.lacks(w)
	d := w.mount()
	d.flush()
	s := d.writing()
	if len(s.Conflicts) > 0 {
		r.t.Errorf("what we had published was taken for somebody else's: %v", s.Conflicts)
	}
	then.restored(l, s.Suspects)
	r.say("%d files, %v and %d edits were safe, %s; %d files that were closed are lost", len(then.safe), then.latest, then.edits[l.edits[0]], l.summary(),
		len(s.Suspects))
	d.kill()
}

// snapshot is what was safe at a moment.
type snapshot struct {
	safe   map[string]version
	latest map[string]int
	edits  map[*edited]int
	logs   map[*logFile]int64
}

// snapshot returns what is safe now.
func (l *load) snapshot() snapshot {
	s := snapshot{edits: map[*edited]int{}, logs: map[*logFile]int64{}}
	s.safe, s.latest = l.promised.kept()
	for _, e := range l.edits {
		s.edits[e] = e.acknowledged()
	}
	for _, a := range l.logs {
		s.logs[a] = a.acknowledged()
	}
	return s
}

// lacks reports whether the bucket lacks something that is safe.
func (s snapshot) lacks(w *world) bool {
	for _, v := range s.safe {
		if b, err := w.object(v.Key); err != nil || int64(len(b)) != v.Size {
			return true
		}
	}
	for e, safe := range s.edits {
		if b, err := w.object(e.base.Key); err != nil || e.check(b, safe) != nil {
			return true
		}
	}
	for a, safe := range s.logs {
		if b, err := w.object(a.v.Key); safe > 0 && (err != nil || int64(len(b)) < safe) {
			return true
		}
	}
	return false
}

// restored fails unless what was safe is in the bucket. What has to wait for a file that is lost,
// which status names, is in the mount at least.
func (s snapshot) restored(l *load, lost []string) {
	t, w := l.t, l.w
	t.Helper()
	const when = "after the loss"
	waits := func(key string) bool {
		return slices.ContainsFunc(lost, func(name string) bool { return path.Dir(name) == path.Dir(key) })
	}
	for _, v := range s.safe {
		if !waits(v.Key) {
			w.keeps(when, v)
			continue
		}
		b, err := os.ReadFile(filepath.Join(l.at, v.Key))
		if err != nil || int64(len(b)) != v.Size || v.wrong(b, 0) >= 0 {
			t.Errorf("%s: %s has %d bytes, want %d (%v)", when, v.Key, len(b), v.Size, err)
		}
	}
	named := w.ordered(when)
	for trainer, step := range s.latest {
		// A later latest waits for what is lost, and has taken the place of this one.
		waits := slices.ContainsFunc(lost, func(path string) bool { return strings.HasPrefix(path, trainer+"/") })
		if named[trainer] < step && !waits {
			t.Errorf("%s: %s/latest names step %d, and step %d was durable", when, trainer, named[trainer], step)
		}
	}
	for e, safe := range s.edits {
		content, err := os.ReadFile(filepath.Join(l.at, e.base.Key))
		if err != nil {
			t.Errorf("%s: %v", when, err)
			continue
		}
		if err := e.check(content, safe); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		// What was closed after the last fsync and is lost has to be looked at first.
		if object, err := w.object(e.base.Key); len(lost) == 0 && (err != nil || !bytes.Equal(content, object)) {
			t.Errorf("%s: the bucket has not what the mount shows of %s (%v)", when, e.base.Key, err)
		}
	}
	for a, safe := range s.logs {
		content, err := os.ReadFile(filepath.Join(l.at, a.v.Key))
		if err := a.check(content, err, safe, true); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// disk: the disk of the cache fills up and gets room again, goes read-only, or fails: whatever is
// written to it is an error. Programs are told so, none hangs, and what was promised is kept: by the
// same daemon, or by the next one on what the disk has.
func (r *round) disk() {
	if r.seed%3 == 0 {
		r.full()
		return
	}
	w := r.w
	disk := newPowerDisk(r.t, 256)
	w.cache = disk.cache
	l := r.lasting()
	w.faults(slowUploads()...)
	data := w.add("data", someSizes(r.rng, 6, 1, 3<<20)...)
	d := w.mount("--upload-bandwidth=20MiB")
	l.start()
	j := w.job(r.rng)
	j.Readers, j.Files = 2, data
	readers := j.start(r.t)
	for end := time.Now().Add(300*time.Millisecond + r.milliseconds(1500)); time.Now().Before(end); {
		l.promised.vouch(d)
	}
	if r.seed%3 == 1 {
		disk.abort()
		r.say("read-only")
	} else {
		disk.outer.abort()
		r.say("failed")
	}
	// What is accepted now is accepted by whoever lies.
	time.Sleep(time.Second)
	readers.tell()
	readers.wait(d).sound(r.t, "with a broken disk")
	if !d.running() {
		r.t.Error("the daemon ended with its disk")
	}
	l.end()
	state := l.snapshot()
	d.kill()
	r.unmount()
	w.ordered("when the disk broke")
	r.report.PowerLosses++
	w.bootFrom(disk.repaired(), int(r.seed%3))
	r.recovered(l, state)
}

// repaired returns a file with what the disk has once its errors are over.
func (p *powerDisk) repaired() string {
	p.t.Helper()
	for unix.Unmount(p.dir, unix.MNT_DETACH) == nil {
	}
	copied := filepath.Join(p.t.TempDir(), "image")
	if err := copyFile(p.image, copied); err != nil {
		p.t.Fatal(err)
	}
	return copied
}

// full: the disk fills up and gets room again, some times. Nothing that was accepted is lost.
func (r *round) full() {
	w, l := r.w, r.everything()
	disk := newDisk(r.t, "ext4", 128)
	w.cache = disk.cache
	w.faults(slowUploads()...)
	d := w.mount()
	l.start()
	for range 2 {
		time.Sleep(r.milliseconds(1000))
		empty := disk.fill()
		time.Sleep(500*time.Millisecond + r.milliseconds(500))
		empty()
	}
	l.end()
	r.say("full twice, %s", l.summary())
	r.report.Pending = l.lacks()
	w.faults()
	r.drained(d, l, "after the disk was full")
}
