package cache

import (
	"context"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// startVerify has all blocks of a whole object checked soon, so that its file can
// be handed out. o.mu must be held.
func (t *ssdTier) startVerify(o *object) {
	if o.mu.disk.verifying {
		return
	}
	select {
	case t.verify <- o:
		o.mu.disk.verifying = true
		o.acquire()
	default: // enough to do; it is asked for again at the next open
	}
}

// runVerifier checks one object after the other.
func (t *ssdTier) runVerifier(ctx context.Context) {
	buf := make([]byte, content.SmallObject)
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-t.verify:
			t.verifyObject(ctx, o, buf)
			t.verified(o)
		}
	}
}

// verifyObject reads every block once, which checks it, also if the file is closed
// meanwhile: who opened it once may do so again. It stops at the first that is not
// good: the object is not whole then.
func (t *ssdTier) verifyObject(ctx context.Context, o *object, buf []byte) {
	for off := int64(0); off < o.geometry.Size; off += int64(len(buf)) {
		o.mu.Lock()
		still := o.wholeOnDisk()
		o.mu.Unlock()
		n := min(int64(len(buf)), o.geometry.Size-off)
		if !still || t.read(ctx, o, buf[:n], off) != nil {
			return
		}
	}
}

func (t *ssdTier) verified(o *object) {
	o.mu.Lock()
	o.mu.disk.verifying = false
	o.rememberChecked()
	o.mu.Unlock()
	o.release()
}

// dropVerify lets go of objects that wait to be verified, at the end.
func (t *ssdTier) dropVerify() {
	for {
		select {
		case o := <-t.verify:
			t.verified(o)
		default:
			return
		}
	}
}
