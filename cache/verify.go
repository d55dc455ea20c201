package cache

import (
	"context"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// verifier checks whole objects whose blocks an earlier process wrote.
type verifier struct {
	files *objectFiles
	queue chan *object
}

func newVerifier(files *objectFiles) *verifier {
	return &verifier{files: files, queue: make(chan *object, 64)}
}

// start has all blocks of a whole object checked soon, so that its file can
// be handed out. o.mu must be held.
func (v *verifier) start(o *object) {
	if o.mu.disk.verifying {
		return
	}
	select {
	case v.queue <- o:
		o.mu.disk.verifying = true
		o.acquire()
	default: // enough to do; it is asked for again at the next open
	}
}

// run checks one object after the other.
func (v *verifier) run(ctx context.Context) {
	buf := make([]byte, content.SmallObject)
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-v.queue:
			v.check(ctx, o, buf)
			v.done(o)
		}
	}
}

// check reads every block once, which checks it, also if the file is closed
// meanwhile: who opened it once may do so again. It stops at the first that is not
// good: the object is not whole then.
func (v *verifier) check(ctx context.Context, o *object, buf []byte) {
	for off := int64(0); off < o.geometry.Size; off += int64(len(buf)) {
		o.mu.Lock()
		still := o.mu.disk.whole()
		o.mu.Unlock()
		n := min(int64(len(buf)), o.geometry.Size-off)
		if !still || v.files.read(ctx, o, buf[:n], off) != nil {
			return
		}
	}
}

func (v *verifier) done(o *object) {
	o.mu.Lock()
	o.mu.disk.verifying = false
	o.mu.disk.rememberChecked()
	o.mu.Unlock()
	o.release()
}

// drop lets go of objects that wait to be verified, at the end.
func (v *verifier) drop() {
	for {
		select {
		case o := <-v.queue:
			v.done(o)
		default:
			return
		}
	}
}
