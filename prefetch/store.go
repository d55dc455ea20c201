package prefetch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/prefetch/session"
)

// Store keeps what sessions hold, so that the daemon, or another node's, knows it
// after a restart. Its methods may be called concurrently for different keys.
type Store interface {
	// Where says where the state of key is kept.
	Where(key session.Key) Persistence
	// Load returns what was saved last, or [io/fs.ErrNotExist].
	Load(ctx context.Context, key session.Key) ([]byte, error)
	// Save replaces what was saved, whole or not at all. It fails with ErrTaken if
	// somebody else has saved there since this store did, or loaded it.
	Save(ctx context.Context, key session.Key, data []byte) error
	// Remove forgets what was saved, if anything was; not what somebody else has.
	Remove(ctx context.Context, key session.Key) error
}

// ErrTaken means that somebody else saves the same session.
var ErrTaken = errors.New("another node keeps the state of a session of the same name there")

// The kinds of a [Persistence] that keeps something.
const (
	KindMount = "mount"
	KindNode  = "node"
)

// Persistence says where a session's state is kept.
type Persistence struct {
	// Kind is KindMount (in the bucket, for every node), KindNode or none.
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
	// Reason says why it is not kept on the mount.
	Reason string `json:"reason,omitempty"`
}

// savedVersion is the version of the format that DESIGN.md describes.
const savedVersion = 1

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
	// Host is whose state it is, and Left says that nobody there uses it any more.
	Host string `json:"host,omitempty"`
	Left bool   `json:"left,omitempty"`
	// Shared says that the state was saved on the mount as well.
	Shared bool `json:"shared,omitempty"`
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
func encodeSession(h savedHeader, p session.Params, held []session.Held, now time.Time) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	n := len(held)
	lines := make([]any, 0, n+2)
	h.Version, h.Instance, h.Buffer, h.Lease, h.Drop = savedVersion, p.Instance, p.Buffer, p.Lease.Seconds(), p.DropOnRelease
	h.Saved = now.UTC().Truncate(time.Second)
	lines = append(lines, h)
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
