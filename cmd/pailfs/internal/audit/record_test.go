package audit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	pailfs "github.com/pailfs/pailfs/fs"
)

// full returns a record in which everything is set.
func full(path, name string) *entry {
	size, mode, uid, gid, mtime := int64(5), uint32(0o2755), uint32(1000), uint32(100), time.Unix(1, 2)
	return &entry{Operation: pailfs.Operation{
		Verb: pailfs.CloseFile, UID: 1, GID: 2, Began: time.Unix(1700000000, 123456789), Took: 1500 * time.Nanosecond,
		Process: &pailfs.Process{PID: 7, Command: "python3", Program: "/usr/bin/python3", Pod: "p", Container: "c"},
		Path:    path, To: name, Object: pailfs.Version{Key: "k/" + path, ETag: `"E"`}, Replaced: pailfs.Version{Key: "r", ETag: "F"},
		Handle: 9, Access: "read-write", Truncated: true, Passthrough: true, Read: 11, Written: 12,
		Change: &pailfs.Change{Size: &size, Mode: &mode, UID: &uid, GID: &gid, Mtime: &mtime},
		Errno:  syscall.EACCES, ByKernel: true,
	}}
}

func TestLineOfEverything(t *testing.T) {
	got := string(appendLine(nil, 3, full("/a", "/b")))
	want := `{"v":1,"seq":3,"time":"2023-11-14T22:13:20.123456789Z","op":"close","uid":1,"gid":2,` +
		`"pid":7,"command":"python3","program":"/usr/bin/python3","pod":"p","container":"c","path":"/a","to":"/b",` +
		`"key":"k//a","etag":"\"E\"","replaced_key":"r","replaced_etag":"F","handle":9,"access":"read-write","truncate":true,` +
		`"passthrough":true,"bytes_read":11,"bytes_written":12,"size":5,"mode":"02755","owner":1000,"group":100,` +
		`"mtime":"1970-01-01T00:00:01.000000002Z","duration_ns":1500,"errno":13,"error":"EACCES","by_kernel":true}` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTextFromOutsideCannotLookLikeSomethingElse(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb":         `"a\u000ab"`,
		"\x1b[31m":     `"\u001b[31m"`,
		"\x7f":         `"\u007f"`,
		`"\`:           `"\"\\"`,
		"\u202etxt":    `"\u202etxt"`,
		"\u2028":       `"\u2028"`,
		"\u009b":       `"\u009b"`,
		"日本 é":         `"日本 é"`,
		"\xff\xfea":    `"\ufffd\ufffda"`,
		"\xed\xa0\x80": `"\ufffd\ufffd\ufffd"`, // half of a pair
	} {
		l := line{}
		valid := l.quote(text)
		if string(l.buf) != want || valid != utf8.ValidString(text) {
			t.Errorf("%q becomes %s, want %s; valid %t", text, l.buf, want, valid)
		}
	}
}

// FuzzLine: what goes in comes out of encoding/json, each byte of it, and a line is one line.
func FuzzLine(f *testing.F) {
	f.Add("/a", "b", int64(0), uint32(0))
	f.Add("/\xff\n\"\\\u2028", "\x00\x1b", int64(-1), uint32(13))
	f.Add("/日本\U0001f600", "\xf0\x9f\x98", int64(1<<62), uint32(4095))
	f.Fuzz(func(t *testing.T, path, name string, number int64, errno uint32) {
		e := full(path, name)
		e.Operation.Process = &pailfs.Process{PID: 1, Command: name, Program: path}
		e.Read, e.Errno = number, syscall.Errno(errno)
		at := time.Unix(number, number)
		e.Change.Mtime = &at
		got := appendLine(nil, uint64(errno), e)
		if bytes.Count(got, []byte("\n")) != 1 || got[len(got)-1] != '\n' {
			t.Fatalf("not one line: %q", got)
		}
		var out struct {
			Path, To, Command, Program string
			Bytes                      int64 `json:"bytes_read"`
			Errno                      int64
			Raw                        map[string]string
		}
		decoder := json.NewDecoder(bytes.NewReader(got))
		if err := decoder.Decode(&out); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		if out.Bytes != number || out.Errno != int64(errno) {
			t.Errorf("numbers %d and %d from %s", out.Bytes, out.Errno, got)
		}
		for field, pair := range map[string][2]string{"path": {path, out.Path}, "to": {name, out.To}, "command": {name, out.Command}, "program": {path, out.Program}} {
			if raw, ok := out.Raw[field]; ok {
				exact, err := base64.StdEncoding.DecodeString(raw)
				if err != nil || string(exact) != pair[0] || utf8.ValidString(pair[0]) {
					t.Errorf("raw %s of %q is %q: %v", field, pair[0], exact, err)
				}
			} else if pair[0] != pair[1] {
				t.Errorf("%s %q came out as %q", field, pair[0], pair[1])
			}
		}
	})
}

var (
	documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
	verbNamed  = regexp.MustCompile("(?m)^\\| `([a-z-]+)`")
)

// TestDocumentHasEveryFieldAndVerb compares AUDIT.md with what lines have.
func TestDocumentHasEveryFieldAndVerb(t *testing.T) {
	text, err := os.ReadFile("AUDIT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, fields, ok := strings.Cut(string(text), "## Fields\n")
	if !ok {
		t.Fatal("no chapter Fields")
	}
	fields, verbs, ok := strings.Cut(fields, "## Operations\n")
	if !ok {
		t.Fatal("no chapter Operations")
	}
	verbs, _, _ = strings.Cut(verbs, "\n## ")
	names := func(r *regexp.Regexp, text string) (all []string) {
		for _, match := range r.FindAllStringSubmatch(text, -1) {
			all = append(all, match[1])
		}
		slices.Sort(all)
		return all
	}
	called := &entry{Operation: pailfs.Operation{Verb: verbEvict}, call: &call{method: "evict", code: "ok", paths: []string{"/"}, more: 1}}
	link := full("/\xff", "")
	link.Verb, link.Name = pailfs.Symlink, "t"
	attribute := full("/", "")
	attribute.Verb, attribute.Name = pailfs.SetXAttr, "user.a"
	own := &entry{Operation: pailfs.Operation{Verb: verbDropped}, own: []member{
		{"source", ""},
		{"mountpoint", ""},
		{"version", ""},
		{"full", ""},
		{"reason", ""},
		{"records", uint64(1)},
		{"first", time.Time{}},
		{"last", time.Time{}},
	}}
	have := map[string]bool{}
	for _, e := range []*entry{full("/", "/b"), called, link, attribute, own} {
		var members map[string]any
		if err := json.Unmarshal(appendLine(nil, 1, e), &members); err != nil {
			t.Fatal(err)
		}
		for name := range members {
			have[name] = true
		}
	}
	var want []string
	for name := range have {
		want = append(want, name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, names(documented, fields)); diff != "" {
		t.Errorf("fields (-lines have +AUDIT.md has)\n%s", diff)
	}
	wantVerbs := []string{}
	for _, v := range []pailfs.Verb{
		pailfs.OpenFile, pailfs.CloseFile, pailfs.Create, pailfs.Mknod, pailfs.Mkdir, pailfs.Symlink, pailfs.Link, pailfs.Tmpfile,
		pailfs.Unlink, pailfs.Rmdir, pailfs.Rename, pailfs.Truncate, pailfs.Fallocate, pailfs.Chmod, pailfs.Chown, pailfs.Utimens,
		pailfs.SetXAttr, pailfs.RemoveXAttr, verbWarm, verbEvict, verbFlush, verbDrain, verbUmount, verbAccept, verbCall,
		verbStart, verbStop, verbReopened, verbDropped,
	} {
		wantVerbs = append(wantVerbs, string(v))
	}
	slices.Sort(wantVerbs)
	if diff := cmp.Diff(wantVerbs, names(verbNamed, verbs)); diff != "" {
		t.Errorf("verbs (-there are +AUDIT.md has)\n%s", diff)
	}
}
