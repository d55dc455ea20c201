package audit

import (
	"encoding/base64"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	pailfs "github.com/pailfs/pailfs/fs"
)

// Version is that of the lines. A reader of version 1 ignores fields that it does not know;
// what has a meaning keeps it, or Version goes up.
const Version = 1

// The verbs beside those of fs: what the log says of itself.
const (
	verbStart    pailfs.Verb = "audit-start"
	verbStop     pailfs.Verb = "audit-stop"
	verbReopened pailfs.Verb = "audit-reopened"
	verbDropped  pailfs.Verb = "audit-dropped"
)

// entry is what a line is made of.
type entry struct {
	pailfs.Operation
	// Call is a call of the control channel, nil for everything else.
	call *call
	// own are the members of a record about the log itself.
	own []member
}

// call is what is recorded of a call of the control channel.
type call struct {
	method string
	code   string
	paths  []string
	more   int
}

// member is a member of a JSON object. Its value is a string, a uint64 or a time.
type member struct {
	name  string
	value any
}

// line is a JSON object that grows.
type line struct {
	buf []byte
	// raw are the bytes of strings that are no UTF-8, as members of an object.
	raw []byte
}

// appendLine appends the line of e, with its number, to buf.
func appendLine(buf []byte, seq uint64, e *entry) []byte {
	l := line{buf: append(buf, `{"v":1,"seq":`...)}
	l.buf = strconv.AppendUint(l.buf, seq, 10)
	l.time("time", e.Began)
	l.text("op", string(e.Verb))
	for _, m := range e.own {
		switch v := m.value.(type) {
		case string:
			l.text(m.name, v)
		case uint64:
			l.number(m.name, int64(v))
		case time.Time:
			l.time(m.name, v)
		}
	}
	if e.own == nil {
		l.operation(e)
	}
	if e.Errno != 0 {
		l.number("errno", int64(e.Errno))
		l.some("error", errnoName(e.Errno))
		l.flag("by_kernel", e.ByKernel)
	}
	if l.raw != nil {
		l.buf = append(l.buf, `,"raw":{`...)
		l.buf = append(l.buf, l.raw[1:]...)
		l.buf = append(l.buf, '}')
	}
	return append(l.buf, "}\n"...)
}

// operation appends what an operation has.
func (l *line) operation(e *entry) {
	l.number("uid", int64(e.UID))
	l.number("gid", int64(e.GID))
	if p := e.Process; p != nil && p.PID != 0 {
		l.number("pid", int64(p.PID))
		l.some("command", p.Command)
		l.some("program", p.Program)
		l.some("pod", p.Pod)
		l.some("container", p.Container)
	}
	if c := e.call; c != nil {
		l.text("method", c.method)
		l.text("code", c.code)
		l.texts("paths", c.paths)
		if c.more > 0 {
			l.number("more_paths", int64(c.more))
		}
	} else {
		l.text("path", e.Path)
	}
	l.some("to", e.To)
	l.some("key", e.Object.Key)
	l.some("etag", e.Object.ETag)
	l.some("replaced_key", e.Replaced.Key)
	l.some("replaced_etag", e.Replaced.ETag)
	switch e.Verb {
	case pailfs.Symlink:
		l.text("target", e.Name)
	case pailfs.SetXAttr, pailfs.RemoveXAttr:
		l.text("xattr", e.Name)
	}
	if e.Handle != 0 {
		l.number("handle", int64(e.Handle))
	}
	l.some("access", e.Access)
	l.flag("truncate", e.Truncated)
	l.flag("passthrough", e.Passthrough)
	if e.Verb == pailfs.CloseFile {
		l.number("bytes_read", e.Read)
		l.number("bytes_written", e.Written)
	}
	if e.Change != nil {
		l.change(e.Change)
	}
	l.number("duration_ns", e.Took.Nanoseconds())
}

// change appends what was asked to be changed.
func (l *line) change(c *pailfs.Change) {
	if c.Size != nil {
		l.number("size", *c.Size)
	}
	if c.Mode != nil {
		l.key("mode")
		l.buf = append(l.buf, '"', '0')
		l.buf = strconv.AppendUint(l.buf, uint64(*c.Mode), 8)
		l.buf = append(l.buf, '"')
	}
	if c.UID != nil {
		l.number("owner", int64(*c.UID))
	}
	if c.GID != nil {
		l.number("group", int64(*c.GID))
	}
	switch {
	case c.Mtime == nil:
	case c.Mtime.IsZero():
		l.text("mtime", "now")
	default:
		l.time("mtime", *c.Mtime)
	}
}

// errnoName returns the name that C has for errno, "" if it has none.
func errnoName(errno syscall.Errno) string { return unix.ErrnoName(errno) }

func (l *line) key(name string) {
	l.buf = append(l.buf, ',', '"')
	l.buf = append(l.buf, name...)
	l.buf = append(l.buf, '"', ':')
}

func (l *line) number(name string, n int64) {
	l.key(name)
	l.buf = strconv.AppendInt(l.buf, n, 10)
}

func (l *line) flag(name string, set bool) {
	if set {
		l.key(name)
		l.buf = append(l.buf, "true"...)
	}
}

// time appends t in UTC, to the nanosecond. JSON has years of four digits alone.
func (l *line) time(name string, t time.Time) {
	l.key(name)
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		t = time.Unix(0, 0).UTC().AddDate(9999-1970, 0, 0)
	}
	l.buf = append(l.buf, '"')
	l.buf = t.AppendFormat(l.buf, time.RFC3339Nano)
	l.buf = append(l.buf, '"')
}

// some appends a string unless it is empty.
func (l *line) some(name, s string) {
	if s != "" {
		l.text(name, s)
	}
}

// text appends a string, and where it is no UTF-8 its bytes among raw.
func (l *line) text(name, s string) {
	l.key(name)
	if !l.quote(s) {
		l.raw = append(l.raw, ',', '"')
		l.raw = append(l.raw, name...)
		l.raw = append(l.raw, '"', ':', '"')
		l.raw = base64.StdEncoding.AppendEncode(l.raw, []byte(s))
		l.raw = append(l.raw, '"')
	}
}

// texts appends a list of strings unless it is empty.
func (l *line) texts(name string, all []string) {
	if len(all) == 0 {
		return
	}
	l.key(name)
	l.buf = append(l.buf, '[')
	for i, s := range all {
		if i > 0 {
			l.buf = append(l.buf, ',')
		}
		l.quote(s) // they were JSON, and so are UTF-8
	}
	l.buf = append(l.buf, ']')
}

const hexDigits = "0123456789abcdef"

// quote appends s as a JSON string, each byte that belongs to no UTF-8 as U+FFFD, and reports
// whether there was none. Control characters, and those which end a line or turn the
// direction of text, are escaped: a name must not look like something else in a terminal.
func (l *line) quote(s string) (valid bool) {
	valid = true
	l.buf = append(l.buf, '"')
	plain := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if b >= ' ' && b != '"' && b != '\\' && b != 0x7f {
				i++
				continue
			}
			l.buf = append(l.buf, s[plain:i]...)
			if b == '"' || b == '\\' {
				l.buf = append(l.buf, '\\', b)
			} else {
				l.buf = append(l.buf, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
			}
			i++
			plain = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			valid = false
			l.buf = append(append(l.buf, s[plain:i]...), `\ufffd`...)
		case misleading(r):
			l.buf = append(l.buf, s[plain:i]...)
			l.buf = append(l.buf, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		default:
			i += size
			continue
		}
		i += size
		plain = i
	}
	l.buf = append(append(l.buf, s[plain:]...), '"')
	return valid
}

// misleading reports whether a character is a control character of the upper half, ends a line
// or turns the direction of what follows.
func misleading(r rune) bool {
	return r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 ||
		r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
}
