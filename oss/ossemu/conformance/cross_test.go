package conformance

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc64"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ossv2 "github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/credentials"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/retry"
	ossv1 "github.com/aliyun/aliyun-oss-go-sdk/oss"
	"github.com/google/go-cmp/cmp"
)

// A sdk is what the two SDKs do alike. Each call is one of the SDK's own.
type sdk interface {
	put(key string, content []byte, meta map[string]string) error
	multipart(key string, parts [][]byte) error
	appendTo(key string, parts [][]byte) error
	copyObject(from, to string) error
	symlink(link, target string) error
	tag(key string, tags map[string]string) error
	deleteMany(keys []string) error

	get(key, httpRange string) ([]byte, error)
	head(key string) (entry, error)
	target(link string) (string, error)
	tags(key string) (map[string]string, error)
	// list returns all objects below prefix, a few a page, by the first or the
	// second version of the operation.
	list(prefix, delimiter string, version int) (objects map[string]entry, prefixes []string, err error)
}

// entry is what is known of an object beside its content.
type entry struct {
	ETag    string
	Size    int64
	ModTime time.Time
	Type    string
	CRC64   string
	Meta    map[string]string
}

const crossBucket = "cross-bucket"

// sdks opens both SDKs with every signature and every style of addressing.
func sdks(t *testing.T, addr string) map[string]sdk {
	t.Helper()
	all := make(map[string]sdk)
	for style, where := range map[string]struct {
		endpoint, proxy string
		cname           bool
	}{
		"path":  {endpoint: "http://" + addr},
		"host":  {endpoint: "http://" + domain, proxy: "http://" + addr},
		"cname": {endpoint: "http://" + cname, proxy: "http://" + addr, cname: true},
	} {
		options := []ossv1.ClientOption{ossv1.UseCname(where.cname)}
		config := ossv2.LoadDefaultConfig().
			WithCredentialsProvider(credentials.NewStaticCredentialsProvider(keyID, keySecret)).
			WithEndpoint(where.endpoint).WithRegion(region).WithUseCName(where.cname).WithRetryer(retry.NopRetryer{})
		if where.proxy != "" {
			options = append(options, ossv1.Proxy(where.proxy))
			config.WithProxyHost(where.proxy)
		}
		options = slices.Clip(options)
		all["sdk1-sign1-"+style] = open1(t, where.endpoint, options...)
		all["sdk1-sign2-"+style] = open1(t, where.endpoint, append(options, ossv1.AuthVersion(ossv1.AuthV2))...)
		all["sdk1-sign4-"+style] = open1(t, where.endpoint, append(options, ossv1.AuthVersion(ossv1.AuthV4), ossv1.Region(region))...)
		v1, v4 := config.Copy(), config.Copy()
		all["sdk2-sign1-"+style] = &sdk2{ossv2.NewClient(v1.WithSignatureVersion(ossv2.SignatureVersionV1))}
		all["sdk2-sign4-"+style] = &sdk2{ossv2.NewClient(v4.WithSignatureVersion(ossv2.SignatureVersionV4))}
	}
	return all
}

func open1(t *testing.T, endpoint string, options ...ossv1.ClientOption) *sdk1 {
	t.Helper()
	client, err := ossv1.New(endpoint, keyID, keySecret, options...)
	if err != nil {
		t.Fatalf("open SDK v1: %v", err)
	}
	bucket, err := client.Bucket(crossBucket)
	if err != nil {
		t.Fatalf("open bucket: %v", err)
	}
	return &sdk1{bucket}
}

// What one SDK has written, the other reads: bytes, identity, metadata, listing.
func TestEachSDKReadsWhatTheOtherWrote(t *testing.T) {
	t.Parallel()
	all := sdks(t, emulate(t, crossBucket))
	for _, writer := range slices.Sorted(maps.Keys(all)) {
		want := write(t, all[writer], writer+"/")
		for _, reader := range slices.Sorted(maps.Keys(all)) {
			if reader[:4] == writer[:4] {
				continue
			}
			t.Run(writer+" is read by "+reader, func(t *testing.T) {
				readBack(t, all[reader], writer+"/", want)
			})
		}
		erase(t, all[writer], writer+"/", want)
	}
}

// write makes an object in every way there is and returns their contents.
func write(t *testing.T, s sdk, prefix string) map[string][]byte {
	t.Helper()
	want := make(map[string][]byte)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i, key := range oddKeys() {
		b := content(i*7919, byte(i))
		must("put", s.put(prefix+key, b, map[string]string{"index": strconv.Itoa(i), "odd-name": "a b+c%2F"}))
		want[prefix+key] = b
	}
	parts := [][]byte{content(100<<10, 'p'), content(300<<10+1, 'q'), content(5, 'r')}
	must("multipart", s.multipart(prefix+"multi part", parts))
	want[prefix+"multi part"] = bytes.Join(parts, nil)
	must("append", s.appendTo(prefix+"log", parts))
	want[prefix+"log"] = bytes.Join(parts, nil)
	must("copy", s.copyObject(prefix+"plus+plus", prefix+"copy of plus+plus"))
	want[prefix+"copy of plus+plus"] = want[prefix+"plus+plus"]
	must("tag", s.tag(prefix+"plain", map[string]string{"key 1": "value+1", "k2": ""}))
	must("symlink", s.symlink(prefix+"link to ü", prefix+"ünïcödé/你好"))
	return want
}

func readBack(t *testing.T, s sdk, prefix string, want map[string][]byte) {
	t.Helper()
	link := prefix + "link to ü"
	for _, version := range []int{1, 2} {
		listed, _, err := s.list(prefix, "", version)
		if err != nil {
			t.Fatalf("list v%d: %v", version, err)
		}
		names := append(slices.Collect(maps.Keys(want)), link)
		slices.Sort(names)
		if diff := cmp.Diff(names, slices.Sorted(maps.Keys(listed))); diff != "" {
			t.Errorf("list v%d (-want +got):\n%s", version, diff)
		}
		for key, e := range listed {
			known, err := s.head(key)
			if err != nil {
				t.Errorf("head %q: %v", key, err)
				continue
			}
			if key == link {
				continue
			}
			if known.ETag != e.ETag || known.Size != e.Size || !known.ModTime.Equal(e.ModTime) || known.Type != e.Type {
				t.Errorf("%q: listed as %+v, but its head is %+v", key, e, known)
			}
		}
		wantPrefixes := make(map[string]bool)
		for _, key := range names {
			if before, _, ok := strings.Cut(key[len(prefix):], "/"); ok {
				wantPrefixes[prefix+before+"/"] = true
			}
		}
		_, prefixes, err := s.list(prefix, "/", version)
		if err != nil {
			t.Fatalf("list v%d: %v", version, err)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(wantPrefixes)), prefixes); diff != "" {
			t.Errorf("prefixes v%d (-want +got):\n%s", version, diff)
		}
	}

	want = maps.Clone(want)
	want[link] = want[prefix+"ünïcödé/你好"]
	types := map[string]string{prefix + "multi part": "Multipart", prefix + "log": "Appendable", link: "Symlink"}
	for key, b := range want {
		got, err := s.get(key, "")
		if err != nil {
			t.Errorf("get %q: %v", key, err)
			continue
		}
		sameBytes(t, key, got, b)
		if n := len(b); n > 10 {
			part, err := s.get(key, fmt.Sprintf("bytes=%d-%d", n/3, n-2))
			if err != nil {
				t.Errorf("get a range of %q: %v", key, err)
			}
			sameBytes(t, "a range of "+key, part, b[n/3:n-1])
		}
		e, err := s.head(key)
		if err != nil {
			t.Errorf("head %q: %v", key, err)
			continue
		}
		wantType := types[key]
		if wantType == "" {
			wantType = "Normal"
		}
		if crc := strconv.FormatUint(crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)), 10); e.CRC64 != crc || e.Size != int64(len(b)) || e.Type != wantType {
			t.Errorf("%q: %+v, want size %d, CRC-64 %s, type %s", key, e, len(b), crc, wantType)
		}
	}
	for i, key := range append(oddKeys(), "copy of plus+plus") {
		e, err := s.head(prefix + key)
		if err != nil {
			continue // Said above.
		}
		if i == len(oddKeys()) {
			i = slices.Index(oddKeys(), "plus+plus")
		}
		if diff := cmp.Diff(map[string]string{"index": strconv.Itoa(i), "odd-name": "a b+c%2F"}, e.Meta); diff != "" {
			t.Errorf("metadata of %q (-want +got):\n%s", key, diff)
		}
	}
	if target, err := s.target(link); err != nil || target != prefix+"ünïcödé/你好" {
		t.Errorf("target %q, %v", target, err)
	}
	tags, err := s.tags(prefix + "plain")
	if diff := cmp.Diff(map[string]string{"key 1": "value+1", "k2": ""}, tags); diff != "" || err != nil {
		t.Errorf("tags, %v (-want +got):\n%s", err, diff)
	}
}

// erase deletes everything at once, then once more.
func erase(t *testing.T, s sdk, prefix string, want map[string][]byte) {
	t.Helper()
	keys := append(slices.Collect(maps.Keys(want)), prefix+"link to ü")
	for range 2 {
		if err := s.deleteMany(keys); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	if left, _, err := s.list(prefix, "", 2); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// metaOf picks the user metadata out of a header, names in lower case.
func metaOf(h http.Header) map[string]string {
	meta := make(map[string]string)
	for name := range h {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-oss-meta-"); ok {
			meta[key] = h.Get(name)
		}
	}
	return meta
}

type sdk1 struct{ b *ossv1.Bucket }

func (s *sdk1) put(key string, content []byte, meta map[string]string) error {
	var options []ossv1.Option
	for name, value := range meta {
		options = append(options, ossv1.Meta(name, value))
	}
	return s.b.PutObject(key, bytes.NewReader(content), options...)
}

func (s *sdk1) multipart(key string, parts [][]byte) error {
	upload, err := s.b.InitiateMultipartUpload(key)
	if err != nil {
		return err
	}
	var done []ossv1.UploadPart
	for i, part := range parts {
		p, err := s.b.UploadPart(upload, bytes.NewReader(part), int64(len(part)), i+1)
		if err != nil {
			return err
		}
		done = append(done, p)
	}
	_, err = s.b.CompleteMultipartUpload(upload, done)
	return err
}

func (s *sdk1) appendTo(key string, parts [][]byte) error {
	next := int64(0)
	for _, part := range parts {
		var err error
		if next, err = s.b.AppendObject(key, bytes.NewReader(part), next); err != nil {
			return err
		}
	}
	return nil
}

func (s *sdk1) copyObject(from, to string) error {
	_, err := s.b.CopyObject(from, to)
	return err
}

func (s *sdk1) symlink(link, target string) error { return s.b.PutSymlink(link, target) }

func (s *sdk1) tag(key string, tags map[string]string) error {
	var t ossv1.Tagging
	for name, value := range tags {
		t.Tags = append(t.Tags, ossv1.Tag{Key: name, Value: value})
	}
	return s.b.PutObjectTagging(key, t)
}

func (s *sdk1) deleteMany(keys []string) error {
	result, err := s.b.DeleteObjects(keys)
	if err == nil && len(result.DeletedObjects) != len(keys) {
		err = fmt.Errorf("%d of %d deleted", len(result.DeletedObjects), len(keys))
	}
	return err
}

func (s *sdk1) get(key, httpRange string) ([]byte, error) {
	var options []ossv1.Option
	if httpRange != "" {
		options = append(options, ossv1.NormalizedRange(strings.TrimPrefix(httpRange, "bytes=")))
	}
	body, err := s.b.GetObject(key, options...)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

func (s *sdk1) head(key string) (entry, error) {
	h, err := s.b.GetObjectDetailedMeta(key)
	if err != nil {
		return entry{}, err
	}
	size, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return entry{}, err
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	return entry{
		ETag: strings.Trim(h.Get("ETag"), `"`), Size: size, ModTime: modified,
		Type: h.Get("X-Oss-Object-Type"), CRC64: h.Get("X-Oss-Hash-Crc64ecma"), Meta: metaOf(h),
	}, err
}

func (s *sdk1) target(link string) (string, error) {
	h, err := s.b.GetSymlink(link)
	return h.Get("X-Oss-Symlink-Target"), err
}

func (s *sdk1) tags(key string) (map[string]string, error) {
	got, err := s.b.GetObjectTagging(key)
	tags := make(map[string]string)
	for _, t := range got.Tags {
		tags[t.Key] = t.Value
	}
	return tags, err
}

func (s *sdk1) list(prefix, delimiter string, version int) (objects map[string]entry, prefixes []string, err error) {
	objects = make(map[string]entry)
	add := func(page []ossv1.ObjectProperties) {
		for _, o := range page {
			objects[o.Key] = entry{ETag: strings.Trim(o.ETag, `"`), Size: o.Size, ModTime: o.LastModified, Type: o.Type}
		}
	}
	next := ossv1.Marker("")
	for more := true; more; {
		if version == 1 {
			page, err := s.b.ListObjects(ossv1.Prefix(prefix), ossv1.Delimiter(delimiter), ossv1.MaxKeys(3), next)
			if err != nil {
				return nil, nil, err
			}
			add(page.Objects)
			prefixes = append(prefixes, page.CommonPrefixes...)
			next, more = ossv1.Marker(page.NextMarker), page.IsTruncated
			continue
		}
		page, err := s.b.ListObjectsV2(ossv1.Prefix(prefix), ossv1.Delimiter(delimiter), ossv1.MaxKeys(3), next)
		if err != nil {
			return nil, nil, err
		}
		add(page.Objects)
		prefixes = append(prefixes, page.CommonPrefixes...)
		next, more = ossv1.ContinuationToken(page.NextContinuationToken), page.IsTruncated
	}
	return objects, prefixes, nil
}

type sdk2 struct{ c *ossv2.Client }

func (s *sdk2) put(key string, content []byte, meta map[string]string) error {
	_, err := s.c.PutObject(context.Background(), &ossv2.PutObjectRequest{
		Bucket: new(crossBucket), Key: &key, Body: bytes.NewReader(content), Metadata: meta,
	})
	return err
}

func (s *sdk2) multipart(key string, parts [][]byte) error {
	ctx := context.Background()
	upload, err := s.c.InitiateMultipartUpload(ctx, &ossv2.InitiateMultipartUploadRequest{Bucket: new(crossBucket), Key: &key})
	if err != nil {
		return err
	}
	var done []ossv2.UploadPart
	for i, part := range parts {
		p, err := s.c.UploadPart(ctx, &ossv2.UploadPartRequest{
			Bucket: new(crossBucket), Key: &key, UploadId: upload.UploadId, PartNumber: int32(i + 1), Body: bytes.NewReader(part),
		})
		if err != nil {
			return err
		}
		done = append(done, ossv2.UploadPart{PartNumber: int32(i + 1), ETag: p.ETag})
	}
	_, err = s.c.CompleteMultipartUpload(ctx, &ossv2.CompleteMultipartUploadRequest{
		Bucket: new(crossBucket), Key: &key, UploadId: upload.UploadId,
		CompleteMultipartUpload: &ossv2.CompleteMultipartUpload{Parts: done},
	})
	return err
}

func (s *sdk2) appendTo(key string, parts [][]byte) error {
	next := int64(0)
	for _, part := range parts {
		result, err := s.c.AppendObject(context.Background(), &ossv2.AppendObjectRequest{
			Bucket: new(crossBucket), Key: &key, Position: &next, Body: bytes.NewReader(part),
		})
		if err != nil {
			return err
		}
		next = result.NextPosition
	}
	return nil
}

func (s *sdk2) copyObject(from, to string) error {
	_, err := s.c.CopyObject(context.Background(), &ossv2.CopyObjectRequest{Bucket: new(crossBucket), Key: &to, SourceKey: &from})
	return err
}

func (s *sdk2) symlink(link, target string) error {
	_, err := s.c.PutSymlink(context.Background(), &ossv2.PutSymlinkRequest{Bucket: new(crossBucket), Key: &link, Target: &target})
	return err
}

func (s *sdk2) tag(key string, tags map[string]string) error {
	var set []ossv2.Tag
	for name, value := range tags {
		set = append(set, ossv2.Tag{Key: new(name), Value: new(value)})
	}
	_, err := s.c.PutObjectTagging(context.Background(), &ossv2.PutObjectTaggingRequest{
		Bucket: new(crossBucket), Key: &key, Tagging: &ossv2.Tagging{TagSet: &ossv2.TagSet{Tags: set}},
	})
	return err
}

func (s *sdk2) deleteMany(keys []string) error {
	var objects []ossv2.DeleteObject
	for _, key := range keys {
		objects = append(objects, ossv2.DeleteObject{Key: new(key)})
	}
	result, err := s.c.DeleteMultipleObjects(context.Background(), &ossv2.DeleteMultipleObjectsRequest{Bucket: new(crossBucket), Objects: objects})
	if err == nil && len(result.DeletedObjects) != len(keys) {
		err = fmt.Errorf("%d of %d deleted", len(result.DeletedObjects), len(keys))
	}
	return err
}

func (s *sdk2) get(key, httpRange string) ([]byte, error) {
	request := &ossv2.GetObjectRequest{Bucket: new(crossBucket), Key: &key}
	if httpRange != "" {
		request.Range, request.RangeBehavior = &httpRange, new("standard")
	}
	result, err := s.c.GetObject(context.Background(), request)
	if err != nil {
		return nil, err
	}
	defer result.Body.Close()
	return io.ReadAll(result.Body)
}

func (s *sdk2) head(key string) (entry, error) {
	r, err := s.c.HeadObject(context.Background(), &ossv2.HeadObjectRequest{Bucket: new(crossBucket), Key: &key})
	if err != nil {
		return entry{}, err
	}
	return entry{
		ETag: strings.Trim(ossv2.ToString(r.ETag), `"`), Size: r.ContentLength, ModTime: ossv2.ToTime(r.LastModified),
		Type: ossv2.ToString(r.ObjectType), CRC64: ossv2.ToString(r.HashCRC64), Meta: metaOf(r.Headers),
	}, nil
}

func (s *sdk2) target(link string) (string, error) {
	r, err := s.c.GetSymlink(context.Background(), &ossv2.GetSymlinkRequest{Bucket: new(crossBucket), Key: &link})
	if err != nil {
		return "", err
	}
	// Unlike SDK v1 this one leaves the decoding to its user.
	return url.QueryUnescape(ossv2.ToString(r.Target))
}

func (s *sdk2) tags(key string) (map[string]string, error) {
	r, err := s.c.GetObjectTagging(context.Background(), &ossv2.GetObjectTaggingRequest{Bucket: new(crossBucket), Key: &key})
	if err != nil {
		return nil, err
	}
	tags := make(map[string]string)
	for _, t := range r.Tags {
		tags[ossv2.ToString(t.Key)] = ossv2.ToString(t.Value)
	}
	return tags, nil
}

func (s *sdk2) list(prefix, delimiter string, version int) (objects map[string]entry, prefixes []string, err error) {
	objects = make(map[string]entry)
	add := func(contents []ossv2.ObjectProperties, common []ossv2.CommonPrefix) {
		for _, o := range contents {
			objects[ossv2.ToString(o.Key)] = entry{
				ETag: strings.Trim(ossv2.ToString(o.ETag), `"`), Size: o.Size, ModTime: ossv2.ToTime(o.LastModified), Type: ossv2.ToString(o.Type),
			}
		}
		for _, p := range common {
			prefixes = append(prefixes, ossv2.ToString(p.Prefix))
		}
	}
	ctx := context.Background()
	if version == 1 {
		pages := s.c.NewListObjectsPaginator(&ossv2.ListObjectsRequest{
			Bucket: new(crossBucket), Prefix: &prefix, Delimiter: &delimiter, MaxKeys: 3, EncodingType: new("url"),
		})
		for pages.HasNext() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, nil, err
			}
			add(page.Contents, page.CommonPrefixes)
		}
		return objects, prefixes, nil
	}
	pages := s.c.NewListObjectsV2Paginator(&ossv2.ListObjectsV2Request{
		Bucket: new(crossBucket), Prefix: &prefix, Delimiter: &delimiter, MaxKeys: 3, EncodingType: new("url"),
	})
	for pages.HasNext() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, nil, err
		}
		add(page.Contents, page.CommonPrefixes)
	}
	return objects, prefixes, nil
}
