package oss

import "context"

// As returns the bucket as class sees it: every request of it goes through the
// limiter in that class.
func (c *Client) As(class Class) Bucket { return &view{Client: c, class: class} }

// view is a client with a class.
type view struct {
	*Client
	class Class
}

var _ Bucket = (*view)(nil)

func (v *view) ReadRange(ctx context.Context, r RangeRequest) (RangeResult, error) {
	return RangeResult{}, ErrUnavailable
}
func (v *view) List(ctx context.Context, r ListRequest) (ListPage, error) {
	return ListPage{}, ErrUnavailable
}
func (v *view) Head(ctx context.Context, key string) (Info, error) { return Info{}, ErrUnavailable }
func (v *view) SymlinkTarget(ctx context.Context, key string) (string, error) {
	return "", ErrUnavailable
}
func (v *view) Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error) {
	return Info{}, ErrUnavailable
}
func (v *view) Copy(ctx context.Context, key string, src Object, o PutOptions) (Info, error) {
	return Info{}, ErrUnavailable
}
func (v *view) Delete(ctx context.Context, keys ...string) error { return ErrUnavailable }
func (v *view) CreateUpload(ctx context.Context, key string, o PutOptions) (MultipartUpload, error) {
	return MultipartUpload{}, ErrUnavailable
}
func (v *view) UploadPart(ctx context.Context, u MultipartUpload, number int, body Body) (Part, error) {
	return Part{}, ErrUnavailable
}
func (v *view) CopyPart(ctx context.Context, u MultipartUpload, number int, src Object, offset, size int64) (Part, error) {
	return Part{}, ErrUnavailable
}
func (v *view) ListParts(ctx context.Context, u MultipartUpload) ([]Part, error) {
	return nil, ErrUnavailable
}
func (v *view) CompleteUpload(ctx context.Context, u MultipartUpload, parts []Part, o PutOptions) (Info, error) {
	return Info{}, ErrUnavailable
}
func (v *view) AbortUpload(ctx context.Context, u MultipartUpload) error { return ErrUnavailable }
func (v *view) ListUploads(ctx context.Context, prefix string) ([]MultipartUpload, error) {
	return nil, ErrUnavailable
}
