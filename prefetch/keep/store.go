package keep

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pailfs/pailfs/prefetch/rights"
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

// Expirer is a [Store] that is told when time has passed: it forgets what was saved of
// sessions before the daemon began, when nobody has come back for them within their lease.
type Expirer interface {
	Expire(now time.Time)
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
	// Reason says why it is not kept on the mount. It names no path.
	Reason string `json:"reason,omitempty"`
	// Detail is what is wrong there, for who may see all of the mount.
	Detail error `json:"-"`
}

const (
	// savedVersion is the version of the format that prefetch/DESIGN.md describes, savedOldVersion
	// the one before, which knows no folders.
	savedVersion    = 2
	savedOldVersion = 1
	// maxSaved is how many files are taken up of a session: more than any user may hold.
	maxSaved = 64 << 10
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
	// Host is whose state it is, and Left says that nobody there uses it any more.
	Host string `json:"host,omitempty"`
	Left bool   `json:"left,omitempty"`
	// Shared says that the state was saved on the mount as well.
	Shared bool `json:"shared,omitempty"`
}

// savedFolder is a line that names a folder. The lines after it mean the first by 1, the
// second by 2 and so on.
type savedFolder struct {
	Folder string `json:"folder"`
}

// savedHeld is the line of a file.
type savedHeld struct {
	session.Held
	In int `json:"in,omitempty"`
}

// savedEnd is the last line. A file without it was cut off.
type savedEnd struct {
	End *int `json:"end"`
}

func (s *savedSession) params() session.Params {
	return session.Params{
		Instance: s.header.Instance, Buffer: s.header.Buffer, DropOnRelease: s.header.Drop, Lease: s.header.lease(),
	}
}

func (h *savedHeader) lease() time.Duration { return time.Duration(h.Lease * float64(time.Second)) }

// encodeSession returns the file of a session.
func encodeSession(h savedHeader, p session.Params, held []session.Held, now time.Time) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	n := len(held)
	h.Version, h.Instance, h.Buffer, h.Lease, h.Drop = savedVersion, p.Instance, p.Buffer, p.Lease.Seconds(), p.DropOnRelease
	h.Saved = now.UTC().Truncate(time.Second)
	if err := e.Encode(h); err != nil {
		return nil, err
	}
	folders := map[string]int{"": 0}
	for _, h := range held {
		in, known := folders[h.Folder]
		if !known {
			in = len(folders)
			folders[h.Folder] = in
			if err := e.Encode(savedFolder{h.Folder}); err != nil {
				return nil, err
			}
		}
		if err := e.Encode(savedHeld{h, in}); err != nil {
			return nil, err
		}
	}
	err := e.Encode(savedEnd{End: &n})
	return b.Bytes(), err
}

// decodeHeader reads the first line of the file of a session.
func decodeHeader(lines *bufio.Scanner) (h savedHeader, err error) {
	if !lines.Scan() {
		return h, errors.New("the session file is empty")
	}
	if err := json.Unmarshal(lines.Bytes(), &h); err != nil || h.Version == 0 {
		return h, errors.New("this is not a session file")
	}
	if h.Version != savedVersion && h.Version != savedOldVersion {
		return h, fmt.Errorf("the session file has version %d, this program knows %d", h.Version, savedVersion)
	}
	return h, nil
}

// savedLines returns the lines of the file of a session.
func savedLines(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	return lines
}

// SavedUntil returns until when somebody may come back for the session of which r is the
// file: the end of its lease.
func SavedUntil(r io.Reader) (time.Time, error) {
	h, err := decodeHeader(savedLines(r))
	return h.Saved.Add(h.lease()), err
}

// decodeSession reads the file of a session. Of one that was cut off, the whole
// lines are taken.
func decodeSession(data []byte) (s *savedSession, err error) {
	s = new(savedSession)
	lines := savedLines(bytes.NewReader(data))
	if s.header, err = decodeHeader(lines); err != nil {
		return nil, err
	}
	folders := []string{""}
	for lines.Scan() && len(s.Held) < maxSaved {
		var line struct {
			savedHeld
			savedEnd
			Folder *string `json:"folder"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			return s, nil // cut off
		}
		switch h := line.Held; {
		case line.End != nil:
			return s, nil
		case line.Folder != nil:
			folder := *line.Folder
			if !strings.HasSuffix(folder, "/") || rights.CheckPath(strings.TrimSuffix(folder, "/")) != nil {
				return nil, fmt.Errorf("the session file names the folder %q", folder)
			}
			folders = append(folders, folder)
		case line.In < 0 || line.In >= len(folders) || h.Path == "" && line.In != 0 || line.In != 0 && strings.Contains(h.Path, "/"),
			rights.CheckPath(h.Path) != nil || h.Index < 0 || h.Seq < 0:
			return nil, fmt.Errorf("the session file names %q", h.Path)
		default:
			h.Folder = folders[line.In]
			s.Held = append(s.Held, h)
		}
	}
	return s, nil
}
