package osstest

import (
	"bytes"
	"context"
	"errors"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss"
)

var headTests = map[string]func(*fixture){
	"OfNothingIsErrNotFound": func(f *fixture) {
		_, err := f.bucket.Head(context.Background(), f.key("nothing"))
		f.wantError(err, oss.ErrNotFound)
	},
	"TellsIdentityChecksumAndMetadata": func(f *fixture) {
		content := noise(4321)
		meta := map[string]string{"colour": "blue", "two-words": "a b"}
		put, err := f.bucket.Put(context.Background(), f.key("object"), bytes.NewReader(content), oss.PutOptions{
			ContentType: "image/jpeg", Meta: map[string]string{"Colour": "blue", "two-words": "a b"},
		})
		if err != nil {
			f.Fatal(err)
		}
		head, err := f.bucket.Head(context.Background(), f.key("object"))
		if err != nil {
			f.Fatal(err)
		}
		if diff := cmp.Diff(put, head); diff != "" {
			f.Errorf("Head differs from what Put returned (-put +head):\n%s", diff)
		}
		if diff := cmp.Diff(meta, head.Meta); diff != "" {
			f.Errorf("metadata differs (-want +got):\n%s", diff)
		}
		if crc := crc64.Checksum(content, crc64.MakeTable(crc64.ECMA)); !head.HasCRC64 || head.CRC64 != crc {
			f.Errorf("CRC is %d, want %d", head.CRC64, crc)
		}
		if head.Size != 4321 || head.Key != f.key("object") || head.ETag == "" || head.ModTime.Nanosecond() != 0 || head.ModTime.IsZero() {
			f.Errorf("identity is %+v", head.Object)
		}
	},
	"OfAPutWithRoughTimeIsTheSame": func(f *fixture) {
		body := bytes.NewReader([]byte("rough"))
		put, err := f.bucket.Put(context.Background(), f.key("rough"), body, oss.PutOptions{RoughTime: true})
		if err != nil {
			f.Fatal(err)
		}
		head, err := f.bucket.Head(context.Background(), f.key("rough"))
		if err != nil || !head.Same(put.Object) || put.CRC64 != head.CRC64 || !put.HasCRC64 {
			f.Errorf("Head = %+v, %v, put %+v", head, err, put)
		}
	},
	"OfAwkwardKeys": func(f *fixture) {
		for _, name := range awkwardNames {
			put := f.put(name, []byte(name))
			head, err := f.bucket.Head(context.Background(), put.Key)
			if err != nil || head.Object != put {
				f.Errorf("Head %q = %+v, %v, put %+v", name, head, err, put)
			}
		}
	},
	"OfAnImpossibleKeyIsErrInvalid": func(f *fixture) {
		for _, key := range []string{"", "/leading", string(bytes.Repeat([]byte("x"), 1024))} {
			_, err := f.bucket.Head(context.Background(), key)
			f.wantError(err, oss.ErrInvalid)
		}
	},
	"SymlinkTargetOfNothingIsErrNotFound": func(f *fixture) {
		_, err := f.bucket.SymlinkTarget(context.Background(), f.key("nothing"))
		f.wantError(err, oss.ErrNotFound)
	},
	"SymlinkTargetOfAPlainObjectIsErrInvalid": func(f *fixture) {
		o := f.put("plain", []byte("plain"))
		_, err := f.bucket.SymlinkTarget(context.Background(), o.Key)
		f.wantError(err, oss.ErrInvalid)
	},
}

var putTests = map[string]func(*fixture){
	"StoresContent": func(f *fixture) {
		for _, size := range []int{0, 1, 4096, 100_000, 5 << 20} {
			content := noise(size)
			put := f.put("object", content)
			if held := f.mustHold("object", content); held != put {
				f.Errorf("%d bytes: Put returned %+v, the key holds %+v", size, put, held)
			}
		}
	},
	"StoresAFile": func(f *fixture) {
		content := noise(200_000)
		path := filepath.Join(f.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			f.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			f.Fatal(err)
		}
		defer file.Close()
		if _, err := f.bucket.Put(context.Background(), f.key("object"), io.NewSectionReader(file, 1000, 100_000), oss.PutOptions{}); err != nil {
			f.Fatal(err)
		}
		f.mustHold("object", content[1000:101_000])
	},
	"BeginsAtTheBodysStart": func(f *fixture) {
		body := bytes.NewReader([]byte("0123456789"))
		if _, err := body.Seek(7, io.SeekStart); err != nil {
			f.Fatal(err)
		}
		if _, err := f.bucket.Put(context.Background(), f.key("object"), body, oss.PutOptions{}); err != nil {
			f.Fatal(err)
		}
		f.mustHold("object", []byte("0123456789"))
	},
	"Overwrites": func(f *fixture) {
		first := f.put("object", []byte("first"))
		second := f.put("object", []byte("second"))
		if first == second {
			f.Error("two versions have one identity")
		}
		f.mustHold("object", []byte("second"))
	},
	"OverwritesNothingIfForbidden": func(f *fixture) {
		f.put("object", []byte("first"))
		_, err := f.bucket.Put(context.Background(), f.key("object"), bytes.NewReader([]byte("second")), oss.PutOptions{ForbidOverwrite: true})
		f.wantError(err, oss.ErrExists)
		f.mustHold("object", []byte("first"))
		if _, err = f.bucket.Put(context.Background(), f.key("other"), bytes.NewReader([]byte("second")), oss.PutOptions{ForbidOverwrite: true}); err != nil {
			f.Fatalf("storing under a free key: %v", err)
		}
		f.mustHold("other", []byte("second"))
	},
	"IsWonByOneIfOverwritingIsForbidden": func(f *fixture) {
		var winners atomic.Int32
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				_, err := f.bucket.Put(context.Background(), f.key("object"), bytes.NewReader(noise(1000+i)), oss.PutOptions{ForbidOverwrite: true})
				switch {
				case err == nil:
					winners.Add(1)
				case !errors.Is(err, oss.ErrExists):
					f.Errorf("Put: %v", err)
				}
			})
		}
		writers.Wait()
		if n := winners.Load(); n != 1 {
			f.Fatalf("%d writers were told that they had created the object", n)
		}
	},
	"RefusesMetadataThatIsNoHeader": func(f *fixture) {
		for _, meta := range []map[string]string{{"bad name": "x"}, {"": "x"}, {"name": "two\nlines"}} {
			_, err := f.bucket.Put(context.Background(), f.key("object"), bytes.NewReader(nil), oss.PutOptions{Meta: meta})
			f.wantError(err, oss.ErrInvalid)
		}
		f.mustBeAbsent("object")
	},
	"OfABodyThatFailsStoresNothing": func(f *fixture) {
		broken := errors.New("disk gone")
		_, err := f.bucket.Put(context.Background(), f.key("object"), failingBody{size: 100_000, err: broken}, oss.PutOptions{})
		f.wantError(err, broken)
		f.mustBeAbsent("object")
	},
}

// failingBody promises bytes and cannot be read.
type failingBody struct {
	size int64
	err  error
}

func (b failingBody) Size() int64 { return b.size }

func (b failingBody) Seek(int64, int) (int64, error) { return 0, nil }

func (b failingBody) Read([]byte) (int, error) { return 0, b.err }

var copyTests = map[string]func(*fixture){
	"StoresTheSourcesContent": func(f *fixture) {
		content := noise(50_000)
		for _, name := range []string{"plain source", "a+b%20c/汉字?&"} {
			src := f.put(name, content)
			copied, err := f.bucket.Copy(context.Background(), f.key("copy"), src, oss.PutOptions{})
			if err != nil {
				f.Fatalf("Copy of %q: %v", name, err)
			}
			if held := f.mustHold("copy", content); held != copied.Object {
				f.Errorf("Copy returned %+v, the key holds %+v", copied.Object, held)
			}
		}
	},
	"KeepsMetadataUnlessToldOther": func(f *fixture) {
		src, err := f.bucket.Put(context.Background(), f.key("source"), bytes.NewReader([]byte("x")), oss.PutOptions{Meta: map[string]string{"a": "1"}})
		if err != nil {
			f.Fatal(err)
		}
		for _, test := range []struct{ given, want map[string]string }{
			{nil, map[string]string{"a": "1"}},
			{map[string]string{"b": "2"}, map[string]string{"b": "2"}},
		} {
			if _, err := f.bucket.Copy(context.Background(), f.key("copy"), src.Object, oss.PutOptions{Meta: test.given}); err != nil {
				f.Fatal(err)
			}
			info, err := f.bucket.Head(context.Background(), f.key("copy"))
			if err != nil {
				f.Fatal(err)
			}
			if diff := cmp.Diff(test.want, info.Meta); diff != "" {
				f.Errorf("copied with %v, metadata differs (-want +got):\n%s", test.given, diff)
			}
		}
	},
	"OfAReplacedSourceIsErrChanged": func(f *fixture) {
		src := f.put("source", []byte("old"))
		f.put("source", []byte("new"))
		_, err := f.bucket.Copy(context.Background(), f.key("copy"), src, oss.PutOptions{})
		f.wantError(err, oss.ErrChanged)
		f.mustBeAbsent("copy")
	},
	"OfADeletedSourceIsErrChanged": func(f *fixture) {
		src := f.put("source", []byte("old"))
		if err := f.bucket.Delete(context.Background(), src.Key); err != nil {
			f.Fatal(err)
		}
		_, err := f.bucket.Copy(context.Background(), f.key("copy"), src, oss.PutOptions{})
		f.wantError(err, oss.ErrChanged)
	},
	"OverwritesNothingIfForbidden": func(f *fixture) {
		src := f.put("source", []byte("source"))
		f.put("copy", []byte("before"))
		_, err := f.bucket.Copy(context.Background(), f.key("copy"), src, oss.PutOptions{ForbidOverwrite: true})
		f.wantError(err, oss.ErrExists)
		f.mustHold("copy", []byte("before"))
	},
}

var deleteTests = map[string]func(*fixture){
	"RemovesOne": func(f *fixture) {
		o := f.put("object", nil)
		if err := f.bucket.Delete(context.Background(), o.Key); err != nil {
			f.Fatal(err)
		}
		f.mustBeAbsent("object")
	},
	"RemovesMany": func(f *fixture) {
		var keys []string
		for _, name := range awkwardNames {
			keys = append(keys, f.put(name, nil).Key)
		}
		f.put("survivor", nil)
		if err := f.bucket.Delete(context.Background(), keys...); err != nil {
			f.Fatal(err)
		}
		if left := f.names(f.keys(oss.ListRequest{Prefix: f.prefix})); len(left) != 1 || left[0] != "survivor" {
			f.Fatalf("left are %q, want the survivor alone", left)
		}
	},
	"CountsWhatIsAbsentAsRemoved": func(f *fixture) {
		f.put("present", nil)
		if err := f.bucket.Delete(context.Background(), f.key("absent")); err != nil {
			f.Errorf("one: %v", err)
		}
		if err := f.bucket.Delete(context.Background(), f.key("absent"), f.key("present"), f.key("absent too")); err != nil {
			f.Errorf("many: %v", err)
		}
		f.mustBeAbsent("present")
	},
	"OfNothingIsNothing": func(f *fixture) {
		if err := f.bucket.Delete(context.Background()); err != nil {
			f.Fatal(err)
		}
	},
	"RefusesTheEmptyKey": func(f *fixture) {
		f.put("object", nil)
		f.wantError(f.bucket.Delete(context.Background(), ""), oss.ErrInvalid)
		f.wantError(f.bucket.Delete(context.Background(), f.key("object"), ""), oss.ErrInvalid)
		f.mustHold("object", nil)
	},
	"MistakesNoKeyForAnother": func(f *fixture) {
		// XML cannot hold the first; what a careless encoder makes of it is the second.
		f.put("a\x01", nil)
		f.put("a\ufffd", nil)
		f.put("b", nil)
		if err := f.bucket.Delete(context.Background(), f.key("a\x01"), f.key("b")); err != nil {
			f.Fatal(err)
		}
		if left := f.names(f.keys(oss.ListRequest{Prefix: f.prefix})); len(left) != 1 || left[0] != "a\ufffd" {
			f.Fatalf("left are %q, want %q alone", left, "a\ufffd")
		}
	},
}
