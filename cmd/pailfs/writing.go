package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/control"
)

// stagingName is the directory in cache-dir that holds what was written and is not
// in the object store yet, endName the file that says what the last mount left.
const (
	stagingName = "staging"
	endName     = "last-end.json"
)

// listedAtEnd is how many paths are named where something was left.
const listedAtEnd = 20

// writing is the part of a daemon that keeps what is written.
type writing struct {
	space *writeback.Space
	dir   string // cache-dir
	stop  context.CancelFunc
	loops sync.WaitGroup
	err   error // of Run
}

// openSpace opens the staging directory, where the mount can be written. What the
// last mount left there is published from now on.
func (d *daemon) openSpace(context.Context) error {
	c := &d.settings.Config
	if !c.Writable() || d.names.frozen() {
		return nil
	}
	dir := filepath.Join(c.CacheDir, stagingName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return d.settings.Refuse("cache-dir", fmt.Errorf("make staging directory: %w", err))
	}
	// What the mount before left word of is no answer of this one's.
	if err := os.Remove(filepath.Join(c.CacheDir, endName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return d.settings.Refuse("cache-dir", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("ask for this machine's name: %w", err)
	}
	cfg := writeback.Config{
		Dir:         dir,
		Endpoint:    c.Endpoint,
		Bucket:      d.source.Bucket,
		Prefix:      d.source.Prefix,
		Host:        host,
		User:        fmt.Sprintf("the mount at %s (process %d)", d.at, os.Getpid()),
		StagingSize: int64(c.StagingSize),
		Bandwidth:   int64(c.UploadBandwidth),
		Unpaced:     c.UploadPace == "none",
		Attrs:       d.attrs,
		Busy:        func() bool { return d.limiter.Stats().InFlight[oss.Demand] > 0 },
		Changed:     d.nameChanged,
	}
	cfg.Through = writeThrough(c)
	if tree, asks := d.shown.(*attributes.Tree); asks {
		cfg.Noted = tree.Noted
	}
	space, err := writeback.Open(cfg, d.shown, d.client.As(oss.Upload), d.cache, d.registry, d.log.Logger)
	switch {
	case errors.Is(err, writeback.ErrForeign):
		return d.settings.Refuse("cache-dir", fmt.Errorf("%w: mount what it belongs to, and unmount, to publish what waits there; or use another directory", err))
	case err != nil:
		return d.settings.Refuse("cache-dir", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.writing = &writing{space: space, dir: c.CacheDir, stop: stop}
	d.writing.loops.Go(func() { d.writing.err = space.Run(ctx) })
	d.opens("write-back", d.writing.close)
	if left := space.Status().Pending; left > 0 {
		d.log.Info("publishing what an earlier mount had left", "changes", left)
	}
	return nil
}

// nameChanged tells the kernel that a name changed without it.
func (d *daemon) nameChanged(dir, name string) {
	select {
	case <-d.opened:
		d.mount.Changed(dir, name)
	default: // nothing is mounted yet
	}
}

// close stops publishing. What was not published stays for the next mount.
func (w *writing) close() error {
	w.stop()
	w.loops.Wait()
	return errors.Join(w.err, w.space.Close())
}

// ending is what a daemon that has ended leaves for who waits for it: a file in
// cache-dir.
type ending struct {
	// PID is the daemon's.
	PID int `json:"pid"`
	// Left counts the changes that are not in the object store, Paths names some.
	Left  int                      `json:"left"`
	Paths []writeback.PendingEntry `json:"paths,omitempty"`
}

// drain publishes what is left when the mount has ended, as long as drain-timeout
// allows, and leaves word of what could not be.
func (d *daemon) drain() error {
	w := d.writing
	if w == nil {
		return nil
	}
	var failed error
	if !d.leave {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(d.settings.DrainTimeout))
		defer cancel()
		if n := w.space.Status().Pending; n > 0 {
			d.log.Info("uploading what is left", "changes", n, "at_most", d.settings.DrainTimeout.String())
		}
		failed = w.space.Drain(ctx)
	}
	end := ending{PID: os.Getpid(), Left: w.space.Status().Pending, Paths: w.space.Pending("", listedAtEnd)}
	if err := end.write(w.dir); err != nil {
		d.log.Warn("cannot leave word of how the mount ended", "error", err)
	}
	if end.Left == 0 && failed == nil {
		return nil
	}
	err := end.error()
	if err == nil {
		err = failed
	}
	d.log.Warn("ended with changes that are not in the object store; the next mount with this cache-dir publishes them", "changes", end.Left, "error", command.OneLine(err))
	if d.leave {
		return nil
	}
	return err
}

// error says what was left, nil if nothing was.
func (e ending) error() error {
	if e.Left == 0 {
		return nil
	}
	var list strings.Builder
	for i, p := range e.Paths {
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprintf(&list, "%s (%s", p.Path, p.State)
		if p.Error != "" {
			fmt.Fprintf(&list, ": %s", p.Error)
		}
		list.WriteString(")")
	}
	if more := e.Left - len(e.Paths); more > 0 {
		fmt.Fprintf(&list, " and %d more", more)
	}
	return fmt.Errorf("%d changes are not in the object store and stay in cache-dir for the next mount: %s", e.Left, list.String())
}

func (e ending) write(dir string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, endName)
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// readEnding returns what the daemon with that process id left word of.
func readEnding(dir string, pid int) (e ending, err error) {
	text, err := os.ReadFile(filepath.Join(dir, endName))
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	if e.PID != pid {
		return e, fmt.Errorf("it was written by process %d, not %d", e.PID, pid)
	}
	return e, nil
}

// flushParams are the parameters of the control method flush.
type flushParams struct {
	// Path is relative to the directory on which the call is made; "" is all of that.
	Path string `json:"path"`
	// Begun is that of the answer before, if this goes on.
	Begun time.Time `json:"begun,omitzero"`
}

// flushAnswer is its result: how far it is after a part of a second.
type flushAnswer struct {
	Done bool `json:"done"`
	// Begun is to be given back with the next call.
	Begun time.Time `json:"begun,omitzero"`
	// Left are the changes at or below the path that are due, with their bytes; at
	// most flushListed are counted. Paths names some of them to those whom the mount
	// belongs to.
	Left  int                      `json:"left"`
	Bytes int64                    `json:"bytes"`
	Paths []writeback.PendingEntry `json:"paths,omitempty"`
	// Error says why something cannot be published as things are.
	Error string `json:"error,omitempty"`
}

const (
	// flushWait is how long one call of flush waits.
	flushWait = 700 * time.Millisecond
	// flushListed bounds how many changes are looked at for an answer.
	flushListed = 10_000
	// flushNamed is how many of them are named.
	flushNamed = 20
)

// rightsPatience is how long the object store may take to tell whether a caller may read a file:
// until then that is not known.
const rightsPatience = 5 * time.Second

// refused returns what is told to a caller who may not read what is at path, or of whom that is not
// known.
func (d *daemon) refused(ctx context.Context, caller control.Caller, path string) error {
	ctx, cancel := context.WithTimeout(ctx, rightsPatience)
	defer cancel()
	if err := d.rights.Refused(ctx, caller.Who(), path); err != nil {
		return control.Refusal(caller, err)
	}
	return nil
}

// answerFlush is the control method flush.
func (d *daemon) answerFlush(ctx context.Context, caller control.Caller, params flushParams) (flushAnswer, error) {
	path, err := caller.Path(params.Path)
	if err != nil {
		return flushAnswer{}, err
	}
	// What is not there may have been removed, which is to be published, too.
	if err := d.refused(ctx, caller, path); err != nil {
		return flushAnswer{}, err
	}
	if d.writing == nil {
		return flushAnswer{Done: true}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	if params.Begun.IsZero() {
		params.Begun = time.Now()
	}
	err = d.writing.space.FlushSince(waiting, path, params.Begun)
	if err == nil {
		return flushAnswer{Done: true}, nil
	}
	if ctx.Err() != nil {
		return flushAnswer{}, ctx.Err()
	}
	due := d.writing.space.Pending(path, flushListed)
	a := flushAnswer{Begun: params.Begun, Left: len(due), Paths: due[:min(flushNamed, len(due))]}
	for _, p := range due {
		a.Bytes += p.Bytes
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		a.Error = command.OneLine(err)
	}
	if !d.mux.MayOwn(caller) {
		a.forStranger()
	}
	return a, nil
}

// throttled is a reader of ranges that keeps to a number of bytes a second.
type throttled struct {
	oss.RangeReader
	limit *rate.Limiter
}

// throttle returns readers that share bytesPerSecond; 0 is no limit.
func throttle(bytesPerSecond int64, readers ...oss.RangeReader) []oss.RangeReader {
	if bytesPerSecond == 0 {
		return readers
	}
	limit := rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(bytesPerSecond/4, 64<<10)))
	for i, r := range readers {
		readers[i] = throttled{r, limit}
	}
	return readers
}

// ReadRange implements [oss.RangeReader].
func (t throttled) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	for left := len(r.Buffer); left > 0; {
		n := min(left, t.limit.Burst())
		if err := t.limit.WaitN(ctx, n); err != nil {
			return oss.RangeResult{}, err
		}
		left -= n
	}
	return t.RangeReader.ReadRange(ctx, r)
}
