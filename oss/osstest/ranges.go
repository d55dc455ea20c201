package osstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"slices"
	"sync"

	"github.com/pailfs/pailfs/oss"
)

var rangeTests = map[string]func(*fixture){
	"FillsExactlyTheAskedBytes": func(f *fixture) {
		content := noise(300_001)
		o := f.put("object", content)
		size := int(o.Size)
		for _, r := range [][2]int{
			{0, 1},
			{0, 2},
			{0, size},
			{0, size - 1},
			{size - 1, size},
			{1, size},
			{1, 2},
			{4095, 4097},
			{65535, 65537},
			{65536, 131072},
			{100_000, 200_000},
			{size - 4096, size},
		} {
			buffer := make([]byte, r[1]-r[0])
			if _, err := f.bucket.ReadRange(context.Background(), oss.RangeRequest{Object: o, Offset: int64(r[0]), Buffer: buffer}); err != nil {
				f.Fatalf("reading %v: %v", r, err)
			}
			if !bytes.Equal(buffer, content[r[0]:r[1]]) {
				f.Fatalf("bytes %v are wrong", r)
			}
		}
	},
	"WritesNothingBesideTheBuffer": func(f *fixture) {
		o := f.put("object", noise(5000))
		frame := bytes.Repeat([]byte{0xEE}, 3000)
		buffer := frame[1000:2000:2000]
		if _, err := f.bucket.ReadRange(context.Background(), oss.RangeRequest{Object: o, Offset: 17, Buffer: buffer}); err != nil {
			f.Fatal(err)
		}
		if !bytes.Equal(frame[:1000], bytes.Repeat([]byte{0xEE}, 1000)) || !bytes.Equal(frame[2000:], bytes.Repeat([]byte{0xEE}, 1000)) {
			f.Fatal("bytes outside the buffer were written")
		}
	},
	"TellsTheChecksumOfTheWholeObject": func(f *fixture) {
		content := noise(70_000)
		o := f.put("object", content)
		result, err := f.bucket.ReadRange(context.Background(), oss.RangeRequest{Object: o, Offset: 100, Buffer: make([]byte, 10)})
		if err != nil {
			f.Fatal(err)
		}
		if want := crc64.Checksum(content, crc64.MakeTable(crc64.ECMA)); !result.HasCRC64 || result.CRC64 != want {
			f.Fatalf("result is %+v, want CRC %d", result, want)
		}
	},
	"AnnouncesWhatHasArrived": func(f *fixture) {
		content := noise(3 << 20)
		o := f.put("object", content)
		buffer := make([]byte, len(content))
		var announced []int
		returned := false
		_, err := f.bucket.ReadRange(context.Background(), oss.RangeRequest{Object: o, Buffer: buffer, Arrived: func(n int) {
			if returned {
				f.Error("Arrived was called after ReadRange had returned")
			}
			if n > len(buffer) || !bytes.Equal(buffer[:n], content[:n]) {
				f.Errorf("the first %d bytes were announced but are not there", n)
			}
			announced = append(announced, n)
		}})
		returned = true
		if err != nil {
			f.Fatal(err)
		}
		if len(announced) == 0 || announced[len(announced)-1] != len(buffer) {
			f.Fatalf("announced %v, want the end to be %d", announced, len(buffer))
		}
		if !slices.IsSorted(announced) || len(slices.Compact(slices.Clone(announced))) != len(announced) {
			f.Fatalf("announced %v, want growing numbers", announced)
		}
	},
	"OfAReplacedObjectIsErrChanged": func(f *fixture) {
		old := f.put("object", noise(1000))
		f.put("object", noise(2000))
		_, err := f.read(old)
		f.wantError(err, oss.ErrChanged)
	},
	"OfAReplacedObjectOfTheSameSizeIsErrChanged": func(f *fixture) {
		content := noise(1000)
		old := f.put("object", content)
		content[500] ^= 1
		f.put("object", content)
		_, err := f.read(old)
		f.wantError(err, oss.ErrChanged)
	},
	"OfADeletedObjectIsErrNotFound": func(f *fixture) {
		old := f.put("object", noise(1000))
		if err := f.bucket.Delete(context.Background(), old.Key); err != nil {
			f.Fatal(err)
		}
		_, err := f.read(old)
		f.wantError(err, oss.ErrNotFound)
	},
	"OutsideTheObjectIsErrInvalid": func(f *fixture) {
		o := f.put("object", noise(1000))
		for _, r := range []oss.RangeRequest{
			{Object: o, Offset: 0, Buffer: nil},
			{Object: o, Offset: -1, Buffer: make([]byte, 1)},
			{Object: o, Offset: 1000, Buffer: make([]byte, 1)},
			{Object: o, Offset: 999, Buffer: make([]byte, 2)},
		} {
			_, err := f.bucket.ReadRange(context.Background(), r)
			f.wantError(err, oss.ErrInvalid)
		}
	},
	"NeverMixesVersions": func(f *fixture) {
		versions := [2][]byte{bytes.Repeat([]byte("old."), 100_000), bytes.Repeat([]byte("new!"), 100_000)}
		f.put("object", versions[0])
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := f.bucket.Put(context.Background(), f.key("object"), bytes.NewReader(versions[i%2]), oss.PutOptions{}); err != nil {
					f.Errorf("Put: %v", err)
					return
				}
			}
		})
		whole := 0
		for range 50 {
			info, err := f.bucket.Head(context.Background(), f.key("object"))
			if err != nil {
				f.Errorf("Head: %v", err)
				break
			}
			got, err := f.read(info.Object)
			switch {
			case errors.Is(err, oss.ErrChanged):
			case err != nil:
				f.Errorf("ReadRange: %v", err)
			case bytes.Equal(got, versions[0]), bytes.Equal(got, versions[1]):
				whole++
			default:
				f.Error("a read returned bytes of two versions")
			}
		}
		close(stop)
		writer.Wait()
		f.Logf("%d of 50 reads met one version for their whole time", whole)
	},
	"WorkInParallel": func(f *fixture) {
		content := noise(1 << 20)
		o := f.put("object", content)
		var readers sync.WaitGroup
		for i := range 32 {
			readers.Go(func() {
				for j := range 8 {
					from := (i*8 + j) * 4000
					buffer := make([]byte, 10_000)
					if _, err := f.bucket.ReadRange(context.Background(), oss.RangeRequest{Object: o, Offset: int64(from), Buffer: buffer}); err != nil {
						f.Errorf("ReadRange: %v", err)
					} else if !bytes.Equal(buffer, content[from:from+len(buffer)]) {
						f.Errorf("bytes at %d are wrong", from)
					}
				}
			})
		}
		readers.Wait()
	},
	"OfAwkwardKeys": func(f *fixture) {
		for i, name := range awkwardNames {
			content := fmt.Appendf(nil, "content %d", i)
			o := f.put(name, content)
			got, err := f.read(o)
			if err != nil || !bytes.Equal(got, content) {
				f.Errorf("reading %q: %q, %v", name, got, err)
			}
		}
	},
}
