package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model says what a store must hold.
type model struct {
	t       *testing.T
	s       *Store
	content map[string][]byte
	attrs   map[string]string
	logs    map[string]bool
	uploads map[string]*modelUpload
	// open are versions that are being read, with what they must give.
	open []openVersion
	n    int
}

type modelUpload struct {
	key   string
	parts map[int][]byte
}

type openVersion struct {
	o    *Object
	c    *Content
	want []byte
}

func (m *model) body(rt *rapid.T) []byte {
	m.n++
	n := rapid.SampledFrom([]int{0, 1, 700, packLimit, packLimit + 1, MinPartSize, 200_000}).Draw(rt, "size")
	return pattern(m.n, n)
}

func (m *model) key(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "a/", "a//b", "b", ".", "..", "a\x01", "log", strings.Repeat("k", 1023)}).Draw(rt, "key")
}

func (m *model) forget(key string) {
	delete(m.content, key)
	delete(m.attrs, key)
	delete(m.logs, key)
}

func (m *model) put(rt *rapid.T) {
	key, body := m.key(rt), m.body(rt)
	contentType := rapid.SampledFrom([]string{"", "text/plain"}).Draw(rt, "type")
	b, err := m.s.Write(bytes.NewReader(body), 1<<30, true)
	if err != nil {
		rt.Fatal(err)
	}
	if _, err := m.s.Put(testBucket, key, b, PutOptions{Attrs: Attributes{ContentType: contentType, Meta: []Pair{{"n", fmt.Sprint(m.n)}}}}); err != nil {
		rt.Fatal(err)
	}
	m.forget(key)
	m.content[key], m.attrs[key] = body, contentType
}

func (m *model) delete(rt *rapid.T) {
	key := m.key(rt)
	_, exists := m.content[key]
	if existed, err := m.s.Delete(testBucket, key); err != nil || existed != exists {
		rt.Fatalf("delete %q: %v, %v; want %v", key, existed, err, exists)
	}
	m.forget(key)
}

func (m *model) append(rt *rapid.T) {
	key, body := m.key(rt), m.body(rt)
	old, exists := m.content[key]
	_, err := m.s.Append(testBucket, key, bytes.NewReader(body), AppendOptions{Position: int64(len(old)), Limit: 1 << 30})
	if exists && !m.logs[key] {
		if !errors.Is(err, ErrNotAppendable) {
			rt.Fatalf("append to %q: %v", key, err)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	m.content[key], m.logs[key] = slices.Concat(old, body), true
}

func (m *model) copy(rt *rapid.T) {
	from, to := m.key(rt), m.key(rt)
	if _, ok := m.content[from]; !ok {
		return
	}
	copyOf(m.t, m.s, from, to)
	body := m.content[from]
	m.forget(to)
	m.content[to], m.attrs[to] = body, ""
}

func (m *model) setAttributes(rt *rapid.T) {
	key := m.key(rt)
	err := m.s.SetAttributes(testBucket, key, func(a *Attributes) { a.ContentType = "image/png" })
	if _, ok := m.content[key]; !ok {
		if !errors.Is(err, ErrNoKey) {
			rt.Fatal(err)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	m.attrs[key] = "image/png"
}

func (m *model) upload(rt *rapid.T) {
	u, err := m.s.CreateUpload(testBucket, m.key(rt), Attributes{})
	if err != nil {
		rt.Fatal(err)
	}
	m.uploads[u.ID] = &modelUpload{u.Key, make(map[int][]byte)}
}

// anyUpload picks an upload that has been begun, "" if there is none.
func (m *model) anyUpload(rt *rapid.T) string {
	if len(m.uploads) == 0 {
		return ""
	}
	ids := slices.Sorted(maps.Keys(m.uploads))
	return ids[rapid.IntRange(0, len(ids)-1).Draw(rt, "upload")]
}

func (m *model) part(rt *rapid.T) {
	id := m.anyUpload(rt)
	if id == "" {
		return
	}
	u := m.uploads[id]
	number := rapid.IntRange(1, 4).Draw(rt, "number")
	var b *Blob
	var body []byte
	var err error
	if from := m.key(rt); rapid.Bool().Draw(rt, "copy") && len(m.content[from]) > 2 {
		o, c, oerr := m.s.Open(testBucket, from)
		if oerr != nil {
			rt.Fatal(oerr)
		}
		defer c.Close()
		off := rapid.IntRange(0, len(m.content[from])-1).Draw(rt, "offset")
		body = m.content[from][off:]
		b, err = m.s.Slice(o, c, int64(off), int64(len(body)))
	} else {
		body = m.body(rt)
		b, err = m.s.Write(bytes.NewReader(body), 1<<30, true)
	}
	if err != nil {
		rt.Fatal(err)
	}
	if _, err := m.s.PutPart(testBucket, u.key, id, number, b); err != nil {
		rt.Fatal(err)
	}
	u.parts[number] = body
}

func (m *model) complete(rt *rapid.T) {
	id := m.anyUpload(rt)
	if id == "" {
		return
	}
	u := m.uploads[id]
	var want []byte
	small := false
	numbers := slices.Sorted(maps.Keys(u.parts))
	for i, n := range numbers {
		want = append(want, u.parts[n]...)
		small = small || (i < len(numbers)-1 && len(u.parts[n]) < MinPartSize)
	}
	_, err := m.s.Complete(testBucket, u.key, id, nil, true, PutOptions{})
	if small {
		if !errors.Is(err, ErrPartTooSmall) {
			rt.Fatal(err)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	m.forget(u.key)
	m.content[u.key], m.attrs[u.key] = want, ""
	delete(m.uploads, id)
}

func (m *model) abort(rt *rapid.T) {
	id := m.anyUpload(rt)
	if id == "" {
		return
	}
	if err := m.s.Abort(testBucket, m.uploads[id].key, id); err != nil {
		rt.Fatal(err)
	}
	delete(m.uploads, id)
}

func (m *model) openKey(rt *rapid.T) {
	key := m.key(rt)
	o, c, err := m.s.Open(testBucket, key)
	want, exists := m.content[key]
	if !exists {
		if !errors.Is(err, ErrNoKey) {
			rt.Fatal(err)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	m.open = append(m.open, openVersion{o, c, want})
}

func (m *model) closeAll(rt *rapid.T) {
	for _, v := range m.open {
		if got := readContent(m.t, v.o, v.c); !bytes.Equal(got, v.want) {
			rt.Fatal("an open version changed")
		}
		v.c.Close()
	}
	m.open = nil
}

func (m *model) restart(rt *rapid.T) {
	m.closeAll(rt)
	if rapid.Bool().Draw(rt, "killed") {
		m.s = abandon(m.t, m.s)
	} else {
		m.s = reopen(m.t, m.s)
	}
	m.s.longJournal = 2000
}

func (m *model) check(rt *rapid.T) {
	page, err := m.s.List(testBucket, ListQuery{Limit: 1000})
	if err != nil {
		rt.Fatal(err)
	}
	want := slices.Sorted(maps.Keys(m.content))
	if d := cmp.Diff(want, names(page)); d != "" {
		rt.Fatal(d)
	}
	var bytesWanted int64
	for _, e := range page.Entries {
		bytesWanted += e.Object.Size
		if got := read(m.t, m.s, e.Key); !bytes.Equal(got, m.content[e.Key]) {
			rt.Fatalf("%q holds other bytes", e.Key)
		}
		if got := e.Object.Attrs.ContentType; got != m.attrs[e.Key] {
			rt.Fatalf("%q has the type %q, want %q", e.Key, got, m.attrs[e.Key])
		}
	}
	u, err := m.s.Usage(testBucket)
	if err != nil {
		rt.Fatal(err)
	}
	if u.Bytes != bytesWanted || u.Objects != int64(len(want)) || u.Uploads != int64(len(m.uploads)) {
		rt.Fatalf("usage %+v", u)
	}
}

func TestRandomWorkMatchesTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			t: t, s: newStore(t), content: make(map[string][]byte), attrs: make(map[string]string),
			logs: make(map[string]bool), uploads: make(map[string]*modelUpload),
		}
		m.s.longJournal = 2000
		rt.Repeat(map[string]func(*rapid.T){
			"put": m.put, "delete": m.delete, "append": m.append, "copy": m.copy, "attributes": m.setAttributes,
			"upload": m.upload, "part": m.part, "complete": m.complete, "abort": m.abort,
			"open": m.openKey, "close": m.closeAll, "restart": m.restart, "check": m.check,
		})
		m.check(rt)
		m.restart(rt)
		m.check(rt)
		// Without names there are no bytes.
		for key := range m.content {
			if _, err := m.s.Delete(testBucket, key); err != nil {
				rt.Fatal(err)
			}
		}
		for id, u := range m.uploads {
			if err := m.s.Abort(testBucket, u.key, id); err != nil {
				rt.Fatal(err)
			}
		}
		m.s = reopen(t, m.s)
		if left := dataFiles(t, m.s); len(left) != 0 {
			rt.Fatalf("files left behind: %v", left)
		}
		if err := m.s.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}
