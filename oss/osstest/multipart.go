package osstest

import (
	"bytes"
	"context"
	"hash/crc64"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss"
)

// partSize is the least that OSS allows for all parts but the last.
const partSize = 100 << 10

var multipartTests = map[string]func(*fixture){
	"MakesOneObjectOfItsParts": func(f *fixture) {
		content := noise(3*partSize + 777)
		u := f.create("object", oss.PutOptions{Meta: map[string]string{"colour": "red"}})
		parts := f.uploadAll(u, content)
		info, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{})
		if err != nil {
			f.Fatal(err)
		}
		if held := f.mustHold("object", content); held != info.Object {
			f.Errorf("CompleteUpload returned %+v, the key holds %+v", info.Object, held)
		}
		if crc := crc64.Checksum(content, crc64.MakeTable(crc64.ECMA)); !info.HasCRC64 || info.CRC64 != crc {
			f.Errorf("CRC is %d, want %d", info.CRC64, crc)
		}
		if diff := cmp.Diff(map[string]string{"colour": "red"}, info.Meta); diff != "" {
			f.Errorf("metadata differs (-want +got):\n%s", diff)
		}
		listed := f.listAll(oss.ListRequest{Prefix: u.Key})
		if len(listed.Objects) != 1 || listed.Objects[0].Object != info.Object {
			f.Errorf("listed %+v, completed %+v", listed.Objects, info.Object)
		}
	},
	"ShowsNothingBeforeItIsComplete": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		f.uploadAll(u, noise(2*partSize))
		f.mustBeAbsent("object")
		if keys := f.keys(oss.ListRequest{Prefix: f.prefix}); len(keys) != 0 {
			f.Fatalf("listed %q", keys)
		}
	},
	"TellsWhatWasUploaded": func(f *fixture) {
		content := noise(partSize + 10)
		u := f.create("object", oss.PutOptions{})
		sent := f.uploadAll(u, content)
		for i, p := range sent {
			piece := content[i*partSize : min((i+1)*partSize, len(content))]
			if p.Number != i+1 || p.Size != int64(len(piece)) || p.CRC64 != crc64.Checksum(piece, crc64.MakeTable(crc64.ECMA)) || p.ETag == "" {
				f.Errorf("part %d is %+v", i+1, p)
			}
		}
		listed, err := f.bucket.ListParts(context.Background(), u)
		if err != nil {
			f.Fatal(err)
		}
		if diff := cmp.Diff(sent, listed); diff != "" {
			f.Errorf("ListParts differs from what was sent (-sent +listed):\n%s", diff)
		}
	},
	"ReplacesAPartOfTheSameNumber": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		f.part(u, 1, noise(partSize))
		last := f.part(u, 1, noise(partSize+1))
		if _, err := f.bucket.CompleteUpload(context.Background(), u, []oss.Part{last}, oss.PutOptions{}); err != nil {
			f.Fatal(err)
		}
		f.mustHold("object", noise(partSize+1))
	},
	"LeavesOutPartsThatAreNotNamed": func(f *fixture) {
		content := noise(3 * partSize)
		u := f.create("object", oss.PutOptions{})
		parts := f.uploadAll(u, content)
		if _, err := f.bucket.CompleteUpload(context.Background(), u, []oss.Part{parts[0], parts[2]}, oss.PutOptions{}); err != nil {
			f.Fatal(err)
		}
		f.mustHold("object", slices.Concat(content[:partSize], content[2*partSize:]))
	},
	"CopiesParts": func(f *fixture) {
		content := noise(4 * partSize)
		src := f.put("source +%20/汉", content)
		u := f.create("object", oss.PutOptions{})
		var parts []oss.Part
		for i, offset := range []int64{2 * partSize, 5} {
			p, err := f.bucket.CopyPart(context.Background(), u, i+1, src, offset, partSize)
			if err != nil {
				f.Fatal(err)
			}
			if p.CRC64 != 0 || p.Size != partSize || p.Number != i+1 {
				f.Errorf("copied part is %+v", p)
			}
			parts = append(parts, p)
		}
		parts = append(parts, f.part(u, 3, []byte("end")))
		info, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{})
		if err != nil {
			f.Fatal(err)
		}
		if held := f.mustHold("object", slices.Concat(content[2*partSize:3*partSize], content[5:5+partSize], []byte("end"))); held != info.Object {
			f.Errorf("CompleteUpload returned %+v, the key holds %+v", info.Object, held)
		}
	},
	"CopiesNoPartOfAnotherVersion": func(f *fixture) {
		src := f.put("source", noise(2*partSize))
		f.put("source", noise(2*partSize+1))
		u := f.create("object", oss.PutOptions{})
		_, err := f.bucket.CopyPart(context.Background(), u, 1, src, 0, partSize)
		f.wantError(err, oss.ErrChanged)
	},
	"CompletesTwice": func(f *fixture) {
		content := noise(2 * partSize)
		u := f.create("object", oss.PutOptions{})
		parts := f.uploadAll(u, content)
		first, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{})
		if err != nil {
			f.Fatal(err)
		}
		second, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{})
		if err != nil || second.Object != first.Object {
			f.Fatalf("the second time: %+v, %v, want %+v", second, err, first)
		}
	},
	"CompletesNotOverAnother": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		parts := f.uploadAll(u, noise(2*partSize))
		f.put("object", []byte("before"))
		_, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{ForbidOverwrite: true})
		f.wantError(err, oss.ErrExists)
		f.mustHold("object", []byte("before"))
	},
	"OfAnUnknownUploadIsErrNotFound": func(f *fixture) {
		f.put("object", noise(1000))
		unknown := oss.MultipartUpload{Key: f.key("object"), ID: "0004B9894A22E5B1888A1E29F8236E2D"}
		_, err := f.bucket.ListParts(context.Background(), unknown)
		f.wantError(err, oss.ErrNotFound)
		_, err = f.bucket.UploadPart(context.Background(), unknown, 1, bytes.NewReader([]byte("x")))
		f.wantError(err, oss.ErrNotFound)
		_, err = f.bucket.CompleteUpload(context.Background(), unknown, []oss.Part{{Number: 1, ETag: "00", Size: 1, CRC64: 1}}, oss.PutOptions{})
		f.wantError(err, oss.ErrNotFound)
	},
	"RefusesWrongParts": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		parts := f.uploadAll(u, noise(3*partSize))
		wrong := slices.Clone(parts)
		wrong[1].ETag = "00000000000000000000000000000000"
		for name, list := range map[string][]oss.Part{
			"none":       nil,
			"descending": {parts[1], parts[0]},
			"twice":      {parts[0], parts[0]},
			"wrong tag":  wrong,
			"missing":    {parts[0], {Number: 9, ETag: parts[0].ETag, Size: 1, CRC64: 1}},
		} {
			if _, err := f.bucket.CompleteUpload(context.Background(), u, list, oss.PutOptions{}); err == nil {
				f.Errorf("%s: completed", name)
			} else {
				f.wantError(err, oss.ErrInvalid)
			}
		}
		f.mustBeAbsent("object")
	},
	"RefusesSmallPartsInTheMiddle": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		parts := []oss.Part{f.part(u, 1, noise(100)), f.part(u, 2, noise(100))}
		_, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{})
		f.wantError(err, oss.ErrInvalid)
	},
	"RefusesImpossiblePartNumbers": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		for _, number := range []int{0, -1, 10001} {
			_, err := f.bucket.UploadPart(context.Background(), u, number, bytes.NewReader([]byte("x")))
			f.wantError(err, oss.ErrInvalid)
		}
	},
	"AbortsTwice": func(f *fixture) {
		u := f.create("object", oss.PutOptions{})
		f.part(u, 1, noise(10))
		for range 2 {
			if err := f.bucket.AbortUpload(context.Background(), u); err != nil {
				f.Fatal(err)
			}
		}
		_, err := f.bucket.ListParts(context.Background(), u)
		f.wantError(err, oss.ErrNotFound)
		f.mustBeAbsent("object")
	},
	"ListsUploadsByPrefix": func(f *fixture) {
		var want []oss.MultipartUpload
		for _, name := range []string{"in/a b+c", "in/汉\x01", "in/same", "in/same"} {
			want = append(want, f.create(name, oss.PutOptions{}))
		}
		f.create("out/side", oss.PutOptions{})
		got, err := f.bucket.ListUploads(context.Background(), f.key("in/"))
		if err != nil {
			f.Fatal(err)
		}
		byID := func(u []oss.MultipartUpload) map[string]string {
			m := make(map[string]string)
			for _, u := range u {
				m[u.ID] = u.Key
			}
			return m
		}
		if diff := cmp.Diff(byID(want), byID(got)); diff != "" || len(got) != len(want) {
			f.Fatalf("uploads differ (-want +got):\n%s", diff)
		}
	},
	"TakesPartsInParallelAndAnyOrder": func(f *fixture) {
		content := noise(8 * partSize)
		u := f.create("object", oss.PutOptions{})
		parts := make([]oss.Part, 8)
		var senders sync.WaitGroup
		for i := range 8 {
			senders.Go(func() {
				n := 7 - i
				p, err := f.bucket.UploadPart(context.Background(), u, n+1, bytes.NewReader(content[n*partSize:(n+1)*partSize]))
				if err != nil {
					f.Errorf("UploadPart: %v", err)
				}
				parts[n] = p
			})
		}
		senders.Wait()
		if _, err := f.bucket.CompleteUpload(context.Background(), u, parts, oss.PutOptions{}); err != nil {
			f.Fatal(err)
		}
		f.mustHold("object", content)
	},
}

func (f *fixture) create(name string, o oss.PutOptions) oss.MultipartUpload {
	f.Helper()
	u, err := f.bucket.CreateUpload(context.Background(), f.key(name), o)
	if err != nil {
		f.Fatalf("CreateUpload %q: %v", name, err)
	}
	if u.Key != f.key(name) || u.ID == "" {
		f.Fatalf("CreateUpload %q = %+v", name, u)
	}
	return u
}

func (f *fixture) part(u oss.MultipartUpload, number int, content []byte) oss.Part {
	f.Helper()
	p, err := f.bucket.UploadPart(context.Background(), u, number, bytes.NewReader(content))
	if err != nil {
		f.Fatalf("UploadPart %d: %v", number, err)
	}
	return p
}

// uploadAll uploads content in parts of partSize.
func (f *fixture) uploadAll(u oss.MultipartUpload, content []byte) []oss.Part {
	f.Helper()
	var parts []oss.Part
	for piece := range slices.Chunk(content, partSize) {
		parts = append(parts, f.part(u, len(parts)+1, piece))
	}
	return parts
}
