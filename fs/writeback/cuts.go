package writeback

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/pailfs/pailfs/oss"
)

// cuts counts how often a staged file was made shorter. Only the daemon does that: the
// kernel, which writes to staged files unseen, asks for every change of a size. So content that
// ends too soon while it is read was cut meanwhile, which is no failure, or it is damaged.
type cuts struct{ begun, ended atomic.Int64 }

// cutMark is a moment between the cuts of a file.
type cutMark int64

// during counts a cut, which do makes.
func (c *cuts) during(do func() error) error {
	c.begun.Add(1)
	defer c.ended.Add(1)
	return do()
}

// mark returns the moment now: what is read from now on shows every cut before it.
func (c *cuts) mark() cutMark { return cutMark(c.ended.Load()) }

// since reports whether what was read since m may lack what a cut has taken.
func (c *cuts) since(m cutMark) bool { return c.begun.Load() != int64(m) }

// extentSeen is how long a staged file was at a moment.
type extentSeen struct {
	size int64
	mark cutMark
}

var (
	// errCut: the file was cut while it was sent, and is published as it is when it rests.
	errCut = fmt.Errorf("it was cut while it was sent: %w", errRipening)
	// errTooShort means that a staged file has fewer bytes than were to be read of it.
	errTooShort = errors.New("the staged file is too short")
	// errDamaged means that a staged file is shorter than it was, and nothing that was asked
	// of the daemon explains that.
	errDamaged = fmt.Errorf("its staged file became shorter than what was written, and no program of the mount has cut it: "+
		"the disk has failed, or somebody changes files in the cache directory; write it anew: %w", syscall.EIO)
)

// endedEarly reports whether err says that content had fewer bytes than it should.
func endedEarly(err error) bool {
	return errors.Is(err, errTooShort) || errors.Is(err, oss.ErrInvalid) && errors.Is(err, io.ErrUnexpectedEOF)
}

// explain returns err, which reading or sending the content came to, unless the reason is that
// the file was cut meanwhile: then it is to be published anew, and nobody has to be told.
// Content that ends early, and was not cut, is damaged.
func (n *snapshot) explain(err error) error {
	switch {
	case !endedEarly(err):
		return err
	case !n.cuts.since(n.mark):
		return fmt.Errorf("%w (%w)", errDamaged, err)
	case n.sealed:
		return errCut
	}
	return errUnsteady
}

// shrunk returns [errDamaged] if the staged file, which has size bytes, has lost some since
// somebody looked last. before is a moment before it was asked for its size; f.committing is held.
func (f *File) shrunk(size int64, before cutMark) error {
	if size < f.seen.size && !f.cuts.since(f.seen.mark) {
		return errDamaged
	}
	f.seen = extentSeen{size, before}
	return nil
}
