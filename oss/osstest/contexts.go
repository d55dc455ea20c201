package osstest

import (
	"bytes"
	"context"
	"time"

	"github.com/pailfs/pailfs/oss"
)

var contextTests = map[string]func(*fixture){
	"CancelledBeforeIsCanceled": func(f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f.everyCallFails(ctx, context.Canceled)
		f.mustBeAbsent("new")
	},
	"ExpiredBeforeIsDeadlineExceeded": func(f *fixture) {
		ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
		defer cancel()
		f.everyCallFails(ctx, context.DeadlineExceeded)
		f.mustBeAbsent("new")
	},
	"CancelledWhileReadingIsCanceled": func(f *fixture) {
		o := f.put("object", noise(8<<20))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		buffer := make([]byte, o.Size)
		announced := 0
		_, err := f.bucket.ReadRange(ctx, oss.RangeRequest{Object: o, Buffer: buffer, Arrived: func(n int) {
			cancel()
			announced = n
		}})
		if err == nil && announced == len(buffer) {
			// All had arrived when it was cancelled.
			return
		}
		f.wantError(err, context.Canceled)
		if !bytes.Equal(buffer[:announced], noise(8 << 20)[:announced]) {
			f.Errorf("the first %d bytes were announced but are not there", announced)
		}
	},
}

// everyCallFails calls every method under ctx.
func (f *fixture) everyCallFails(ctx context.Context, kind error) {
	f.Helper()
	o := f.put("object", noise(1000))
	u := f.create("upload", oss.PutOptions{})
	part := f.part(u, 1, noise(10))
	key := f.key("new")
	b := f.bucket
	for name, call := range map[string]func() error{
		"ReadRange": func() error {
			_, err := b.ReadRange(ctx, oss.RangeRequest{Object: o, Buffer: make([]byte, 10)})
			return err
		},
		"List":          func() error { _, err := b.List(ctx, oss.ListRequest{Prefix: f.prefix}); return err },
		"Head":          func() error { _, err := b.Head(ctx, o.Key); return err },
		"SymlinkTarget": func() error { _, err := b.SymlinkTarget(ctx, o.Key); return err },
		"Put":           func() error { _, err := b.Put(ctx, key, bytes.NewReader([]byte("x")), oss.PutOptions{}); return err },
		"Copy":          func() error { _, err := b.Copy(ctx, key, o, oss.PutOptions{}); return err },
		"Delete":        func() error { return b.Delete(ctx, o.Key) },
		"Delete many":   func() error { return b.Delete(ctx, o.Key, key) },
		"CreateUpload":  func() error { _, err := b.CreateUpload(ctx, key, oss.PutOptions{}); return err },
		"UploadPart":    func() error { _, err := b.UploadPart(ctx, u, 2, bytes.NewReader([]byte("x"))); return err },
		"CopyPart":      func() error { _, err := b.CopyPart(ctx, u, 2, o, 0, 10); return err },
		"ListParts":     func() error { _, err := b.ListParts(ctx, u); return err },
		"CompleteUpload": func() error {
			_, err := b.CompleteUpload(ctx, u, []oss.Part{part}, oss.PutOptions{})
			return err
		},
		"AbortUpload": func() error { return b.AbortUpload(ctx, u) },
		"ListUploads": func() error { _, err := b.ListUploads(ctx, f.prefix); return err },
	} {
		err := call()
		if err == nil {
			f.Errorf("%s succeeded", name)
			continue
		}
		f.wantError(err, kind)
	}
	f.mustHold("object", noise(1000))
}
