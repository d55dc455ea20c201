package bare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"net"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// server starts an emulator with one bucket and returns a client of it.
func server(t *testing.T) *Client {
	t.Helper()
	s, err := ossemu.Open(ossemu.Config{
		Dir: t.TempDir(), Credentials: []ossemu.Credential{{AccessKeyID: "id", AccessKeySecret: "secret"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := Open(Config{Endpoint: "http://" + l.Addr().String(), Bucket: "bench", KeyID: "id", Secret: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := errors.Join(s.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	if err := c.CreateBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// object is made content under a key.
func object(key string, size, period int64) Object {
	content := dataset.NewContent(5, key, period)
	return Object{Key: key, Size: size, Period: period, Fill: func(p []byte, offset int64) error {
		content.Fill(p, offset)
		return nil
	}}
}

func whole(t *testing.T, o Object) []byte {
	t.Helper()
	p := make([]byte, o.Size)
	if err := o.Fill(p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatIsLoadedIsRead(t *testing.T) {
	c := server(t)
	objects := []Object{
		object("small/a b+c%&?.bin", 1000, 0),
		object("empty", 0, 0),
		object("one-part", PartSize, 0),
		object("parts/ü", 2*PartSize+4097, 0),
		object("repeated", 3*PartSize+5, PartSize),
	}
	var stored atomic.Int64
	if err := c.Load(t.Context(), objects, 4, func(n int64) { stored.Add(n) }); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, o := range objects {
		total += o.Size
		want, got := whole(t, o), make([]byte, o.Size)
		a, err := c.Read(t.Context(), o.Key, got)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%q came back changed", o.Key)
		}
		if crc := crc64.Checksum(want, crc64.MakeTable(crc64.ECMA)); !a.HasCRC64 || a.CRC64 != crc {
			t.Errorf("%q: CRC64 %x, %v, want %x", o.Key, a.CRC64, a.HasCRC64, crc)
		}
		if o.Size < 1000 {
			continue
		}
		part := make([]byte, 500)
		if _, err := c.ReadRange(t.Context(), o.Key, o.Size-600, part); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(part, want[o.Size-600:o.Size-100]) {
			t.Errorf("a range of %q came back changed", o.Key)
		}
	}
	if stored.Load() != total {
		t.Errorf("%d bytes were reported as stored, want %d", stored.Load(), total)
	}
	keys := 0
	if err := c.List(t.Context(), "", func(Listed) error { keys++; return nil }); err != nil || keys != len(objects) {
		t.Errorf("%d objects are listed, want %d (%v)", keys, len(objects), err)
	}
}

func TestListAndDeleteGoThroughAllPages(t *testing.T) {
	c := server(t)
	var objects []Object
	for i := range 2105 {
		objects = append(objects, object(fmt.Sprintf("many/%05d", i), 3, 0))
	}
	objects = append(objects, object("other", 3, 0))
	if err := c.Load(t.Context(), objects, 8, nil); err != nil {
		t.Fatal(err)
	}
	count := func(prefix string) int {
		n := 0
		if err := c.List(t.Context(), prefix, func(o Listed) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count("many/"); n != 2105 {
		t.Errorf("%d objects are listed", n)
	}
	if err := c.DeleteAll(t.Context(), "many/"); err != nil {
		t.Fatal(err)
	}
	if count("many/") != 0 || count("") != 1 {
		t.Errorf("left are %d and %d", count("many/"), count(""))
	}
}

func TestErrorsNameTheServersCode(t *testing.T) {
	c := server(t)
	_, err := c.Read(t.Context(), "missing", make([]byte, 1))
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Status != 404 || status.Code != "NoSuchKey" {
		t.Errorf("a missing key: %v", err)
	}
	if _, err := c.Put(t.Context(), "k", []byte("four")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(t.Context(), "k", make([]byte, 3)); err == nil {
		t.Error("an object of another size was accepted")
	}
	stranger, err := Open(Config{Endpoint: c.cfg.Endpoint, Bucket: "bench", KeyID: "id", Secret: "wrong"})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	_, err = stranger.Read(t.Context(), "k", make([]byte, 4))
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Code != "SignatureDoesNotMatch" {
		t.Errorf("a wrong secret: %v", err)
	}
}

func TestFailedUploadIsAborted(t *testing.T) {
	c := server(t)
	broken := object("broken", 3*PartSize, 0)
	fill := broken.Fill
	fault := errors.New("cannot make it")
	broken.Fill = func(p []byte, offset int64) error {
		if offset > 0 {
			return fault
		}
		return fill(p, offset)
	}
	if err := c.Load(t.Context(), []Object{broken}, 2, nil); !errors.Is(err, fault) {
		t.Errorf("error is %v", err)
	}
	b, _, err := c.call(context.Background(), "GET", "", "uploads", map[string][]string{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("<UploadId>")) {
		t.Errorf("an upload is left: %s", b)
	}
}
