package prefetch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"time"

	"github.com/pailfs/pailfs/prefetch/session"
)

// Store keeps what sessions hold, so that the daemon, or another node's, knows it
// after a restart.
type Store interface {
	// Where says where the state of key is kept.
	Where(key session.Key) Persistence
	// Load returns what was saved last, or [io/fs.ErrNotExist].
	Load(ctx context.Context, key session.Key) ([]byte, error)
	// Save replaces what was saved, whole or not at all.
	Save(ctx context.Context, key session.Key, data []byte) error
	// Remove forgets what was saved, if anything was.
	Remove(ctx context.Context, key session.Key) error
}

// Persistence says where a session's state is kept.
type Persistence struct {
	// Kind is mount (in the bucket, for every node), node or none.
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
	// Reason says why it is not kept on the mount.
	Reason string `json:"reason,omitempty"`
}

const (
	// saveEvery is how often what changed is saved.
	saveEvery = time.Second
	// saveTimeout bounds one save.
	saveTimeout = 30 * time.Second
	// savedVersion is the version of the format that SESSIONS.md describes.
	savedVersion = 1
)

// savedSession is a session as its file has it.
type savedSession struct {
	header savedHeader
	Held   []session.Held
}

// savedHeader is the first line of the file.
type savedHeader struct {
	Version  int         `json:"pailfs_session"`
	Key      session.Key `json:"key"`
	Instance string      `json:"instance,omitempty"`
	Buffer   int         `json:"buffer"`
	Lease    float64     `json:"lease_seconds"`
	Drop     bool        `json:"drop_on_release,omitempty"`
	Saved    time.Time   `json:"saved"`
}

// savedEnd is the last line. A file without it was cut off.
type savedEnd struct {
	End *int `json:"end"`
}

func (s *savedSession) params() session.Params {
	return session.Params{
		Instance: s.header.Instance, Buffer: s.header.Buffer, DropOnRelease: s.header.Drop,
		Lease: time.Duration(s.header.Lease * float64(time.Second)),
	}
}

// encodeSession returns the file of a session.
func encodeSession(key session.Key, p session.Params, held []session.Held, now time.Time) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	n := len(held)
	lines := make([]any, 0, n+2)
	lines = append(lines, savedHeader{
		Version: savedVersion, Key: key, Instance: p.Instance, Buffer: p.Buffer,
		Lease: p.Lease.Seconds(), Drop: p.DropOnRelease, Saved: now.UTC().Truncate(time.Second),
	})
	for _, h := range held {
		lines = append(lines, h)
	}
	lines = append(lines, savedEnd{End: &n})
	for _, line := range lines {
		if err := e.Encode(line); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// decodeSession reads the file of a session. Of one that was cut off, the whole
// lines are taken.
func decodeSession(data []byte) (*savedSession, error) {
	s := new(savedSession)
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return nil, errors.New("the session file is empty")
	}
	if err := json.Unmarshal(lines.Bytes(), &s.header); err != nil || s.header.Version == 0 {
		return nil, errors.New("this is not a session file")
	}
	if s.header.Version != savedVersion {
		return nil, fmt.Errorf("the session file has version %d, this program knows %d", s.header.Version, savedVersion)
	}
	for lines.Scan() {
		var end savedEnd
		if json.Unmarshal(lines.Bytes(), &end) == nil && end.End != nil {
			return s, nil
		}
		var h session.Held
		if json.Unmarshal(lines.Bytes(), &h) != nil {
			return s, nil // cut off
		}
		if CheckPath(h.Path) != nil || h.Index < 0 || h.Seq < 0 {
			return nil, fmt.Errorf("the session file names %q", h.Path)
		}
		s.Held = append(s.Held, h)
	}
	return s, nil
}

// load returns what was saved of a session that the daemon does not know, or nil.
func (p *Prefetcher) load(ctx context.Context, key session.Key) *savedSession {
	p.mu.Lock()
	_, _, known := p.mu.book.Export(key)
	p.mu.Unlock()
	if known {
		return nil
	}
	data, err := p.cfg.Store.Load(ctx, key)
	if err == nil {
		var s *savedSession
		if s, err = decodeSession(data); err == nil {
			return s
		}
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		p.log.Warn("cannot read what a session held; it begins anew", "task", key.Task, "worker", key.Worker, "error", err)
	}
	return nil
}

// runSave saves what changed, until ctx ends, and then once more.
func (p *Prefetcher) runSave(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.saveChanged(ctx)
		case <-ctx.Done():
			p.saveChanged(context.WithoutCancel(ctx))
			return
		}
	}
}

// saveChanged saves the sessions that changed. One that was closed is forgotten.
func (p *Prefetcher) saveChanged(ctx context.Context) {
	if p.cfg.Store == nil {
		return
	}
	p.mu.Lock()
	keys := p.mu.book.TakeDirty()
	p.mu.Unlock()
	for _, key := range keys {
		if err := p.saveOne(ctx, key); err != nil && ctx.Err() == nil {
			p.log.Warn("cannot save what a session holds", "task", key.Task, "worker", key.Worker, "error", err)
		}
	}
}

func (p *Prefetcher) saveOne(ctx context.Context, key session.Key) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	p.mu.Lock()
	held, params, ok := p.mu.book.Export(key)
	p.mu.Unlock()
	if !ok {
		return p.cfg.Store.Remove(ctx, key)
	}
	data, err := encodeSession(key, params, held, time.Now())
	if err != nil {
		return err
	}
	return p.cfg.Store.Save(ctx, key, data)
}
