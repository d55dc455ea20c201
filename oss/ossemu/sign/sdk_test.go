package sign_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ossv2 "github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/credentials"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/retry"
	ossv1 "github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

const (
	sdkID     = "LTAI-test/with+odd=id"
	sdkSecret = "a secret/with+odd=bytes"
	sdkToken  = "CAIS/token+with=odd&bytes "
	// oddKey has every kind of byte that the encodings treat in their own way.
	oddKey = "dir a/b+c%2F~*'()!$&,;=:@?#[]{}|^`\"<>\\/\u00e9\u4f60/ end"
)

// sdkKeys holds the key pair of the tests, with a token when temporary.
func sdkKeys(temporary bool) keys {
	c := sign.Credential{AccessKeyID: sdkID, AccessKeySecret: sdkSecret}
	if temporary {
		c.SecurityToken = strings.TrimSpace(sdkToken)
	}
	return keys{sdkID: c}
}

// sendV1 makes SDK v1 send every kind of request that it signs in its own way.
// What it makes of the answers does not matter.
func sendV1(t *testing.T, endpoint string, options ...ossv1.ClientOption) {
	t.Helper()
	client, err := ossv1.New(endpoint, sdkID, sdkSecret, options...)
	if err != nil {
		t.Fatalf("open SDK v1: %v", err)
	}
	bucket, err := client.Bucket("some-bucket")
	if err != nil {
		t.Fatalf("open bucket: %v", err)
	}
	_, _ = client.ListBuckets(ossv1.Prefix("a b"), ossv1.MaxKeys(3))
	_, _ = client.GetBucketInfo("some-bucket")
	_ = client.CreateBucket("some-bucket", ossv1.StorageClass(ossv1.StorageIA))
	_ = bucket.PutObject(oddKey, strings.NewReader("content"), ossv1.ContentType("text/plain; charset=utf-8"),
		ossv1.Meta("odd-Name", "a  value,  with \u00e9"), ossv1.ContentMD5("mgNkuembtIDdJeHwKEyFVQ=="))
	if body, err := bucket.GetObject(oddKey, ossv1.Range(2, 5), ossv1.RangeBehavior("standard"), ossv1.ResponseContentType("a/b;c=d e")); err == nil {
		_ = body.Close()
	}
	_, _ = bucket.GetObjectMeta(oddKey)
	_, _ = bucket.ListObjects(ossv1.Prefix("a/b c+"), ossv1.Marker("m"), ossv1.Delimiter("/"))
	_, _ = bucket.ListObjectsV2(ossv1.Prefix("p"), ossv1.ContinuationToken("CgJ-x_.y"), ossv1.StartAfter("s t"))
	_, _ = bucket.CopyObject(oddKey, "copy of "+oddKey, ossv1.MetadataDirective(ossv1.MetaReplace), ossv1.Meta("x", "y"))
	_, _ = bucket.DeleteObjects([]string{"a", oddKey})
	_ = bucket.PutSymlink("link", oddKey)
	_, _ = bucket.AppendObject("log", strings.NewReader("line"), 42)
	upload := ossv1.InitiateMultipartUploadResult{Bucket: "some-bucket", Key: oddKey, UploadID: "0123456789ABCDEF"}
	_, _ = bucket.InitiateMultipartUpload(oddKey)
	_, _ = bucket.UploadPart(upload, strings.NewReader("part"), 4, 7)
	_, _ = bucket.UploadPartCopy(upload, "some-bucket", oddKey, 5, 10, 3)
	_, _ = bucket.CompleteMultipartUpload(upload, []ossv1.UploadPart{{PartNumber: 1, ETag: "x"}})
	_, _ = bucket.ListUploadedParts(upload)
	_ = bucket.AbortMultipartUpload(upload)
	_ = bucket.PutObjectTagging(oddKey, ossv1.Tagging{Tags: []ossv1.Tag{{Key: "k", Value: "v"}}})
}

func v1Schemes() map[string][]ossv1.ClientOption {
	return map[string][]ossv1.ClientOption{
		"v1": nil,
		"v2": {ossv1.AuthVersion(ossv1.AuthV2)},
		"v2-additional": {
			ossv1.AuthVersion(ossv1.AuthV2), ossv1.AdditionalHeaders([]string{"Range", "user-agent", "Content-Type", "absent"}),
		},
		"v4": {ossv1.AuthVersion(ossv1.AuthV4), ossv1.Region("cn-hangzhou")},
		"v4-additional": {
			ossv1.AuthVersion(ossv1.AuthV4), ossv1.Region("cn-hangzhou"),
			ossv1.AdditionalHeaders([]string{"Range", "user-agent", "Content-Type", "absent"}),
		},
	}
}

func TestSDKv1HeadersAreAcceptedAndProtectTheRequest(t *testing.T) {
	for name, options := range v1Schemes() {
		for _, temporary := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/temporary=%t", name, temporary), func(t *testing.T) {
				rec := record(t)
				all := options
				if temporary {
					all = append(slices.Clip(all), ossv1.SecurityToken(sdkToken))
				}
				sendV1(t, rec.URL, all...)
				judge(t, rec, temporary, 19)
			})
		}
	}
}

// judge verifies every recorded request, wants at least the given number of
// them, and wants every change of one refused.
func judge(t *testing.T, rec *recorder, temporary bool, atLeast int) {
	t.Helper()
	v := sign.New(sign.Config{Keys: sdkKeys(temporary), Region: "cn-hangzhou"})
	taken := rec.take(t)
	if len(taken) < atLeast {
		t.Errorf("only %d requests have arrived, want %d", len(taken), atLeast)
	}
	for _, s := range taken {
		id := mustAccept(t, v, s.again(), s.bucket, s.key)
		if id.AccessKeyID != sdkID || id.S3 || id.Anonymous {
			t.Errorf("%s %s accepted as %+v", s.request.Method, s.request.URL, id)
		}
		refuseEachChange(t, v, s)
		if text, _, e := content(v, s.again(), id); e != nil || text != s.body {
			t.Errorf("%s %s: body %q, %v, want %q", s.request.Method, s.request.URL, text, e, s.body)
		}
		other := sign.New(sign.Config{Keys: sdkKeys(!temporary)})
		if temporary {
			mustRefuse(t, other, s.again(), s.bucket, s.key, "InvalidSecurityToken")
		} else {
			mustRefuse(t, other, s.again(), s.bucket, s.key, "InvalidAccessKeyId")
		}
	}
}

func TestSDKv1PresignedURLsAreAcceptedUntilTheyExpire(t *testing.T) {
	for name, options := range v1Schemes() {
		for _, temporary := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/temporary=%t", name, temporary), func(t *testing.T) {
				rec := record(t)
				// SDK v1 names a Content-Type among the additional headers of a URL but
				// signs as if it had not, so the list holds none here.
				all := append(slices.Clip(options), ossv1.AdditionalHeaders([]string{"x-additional"}))
				if temporary {
					all = append(all, ossv1.SecurityToken(sdkToken))
				}
				client, err := ossv1.New(rec.URL, sdkID, sdkSecret, all...)
				if err != nil {
					t.Fatal(err)
				}
				bucket, err := client.Bucket("some-bucket")
				if err != nil {
					t.Fatal(err)
				}
				get, err := bucket.SignURL(oddKey, ossv1.HTTPGet, 600, ossv1.ResponseContentType("a/b;c=d e"), ossv1.Process("image/resize,w_100"))
				if err != nil {
					t.Fatal(err)
				}
				put, err := bucket.SignURL(oddKey, ossv1.HTTPPut, 600, ossv1.ContentType("text/x"), ossv1.Meta("a", "b c"))
				if err != nil {
					t.Fatal(err)
				}
				send(t, http.MethodGet, get, nil)
				send(t, http.MethodPut, put, http.Header{"Content-Type": {"text/x"}, "X-Oss-Meta-A": {"b c"}})
				judgeURLs(t, rec, temporary)
			})
		}
	}
}

// judgeURLs verifies recorded presigned requests, now and after their end.
func judgeURLs(t *testing.T, rec *recorder, temporary bool) {
	t.Helper()
	v := sign.New(sign.Config{Keys: sdkKeys(temporary)})
	late := sign.New(sign.Config{Keys: sdkKeys(temporary), Now: func() time.Time { return time.Now().Add(602 * time.Second) }})
	for _, s := range rec.take(t) {
		if id := mustAccept(t, v, s.again(), s.bucket, s.key); !id.Presigned || id.AccessKeyID != sdkID {
			t.Errorf("%s accepted as %+v", s.request.URL, id)
		}
		refuseEachChange(t, v, s)
		e := mustRefuse(t, late, s.again(), s.bucket, s.key, "AccessDenied")
		if e.Message != "Request has expired." || e.Details["Expires"] == "" || e.Details["Endpoint"] != "" {
			t.Errorf("an expired URL is refused with %+v", e)
		}
	}
}

func send(t *testing.T, method, url string, header http.Header) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func v2Client(endpoint string, temporary bool, version ossv2.SignatureVersionType, additional ...string) *ossv2.Client {
	token := []string{}
	if temporary {
		token = append(token, strings.TrimSpace(sdkToken))
	}
	cfg := ossv2.LoadDefaultConfig().
		WithCredentialsProvider(credentials.NewStaticCredentialsProvider(sdkID, sdkSecret, token...)).
		WithEndpoint(endpoint).WithRegion("cn-hangzhou").WithSignatureVersion(version).
		WithRetryer(retry.NopRetryer{}).WithAdditionalHeaders(additional)
	return ossv2.NewClient(cfg)
}

func sendV2(c *ossv2.Client) {
	ctx := context.Background()
	bucket, key := new("some-bucket"), new(oddKey)
	_, _ = c.ListBuckets(ctx, &ossv2.ListBucketsRequest{Prefix: new("a b"), MaxKeys: 3})
	_, _ = c.GetBucketInfo(ctx, &ossv2.GetBucketInfoRequest{Bucket: bucket})
	_, _ = c.PutBucket(ctx, &ossv2.PutBucketRequest{Bucket: bucket})
	_, _ = c.PutObject(ctx, &ossv2.PutObjectRequest{
		Bucket: bucket, Key: key, Body: strings.NewReader("content"),
		Metadata: map[string]string{"Odd-Name": " a  value,  with \u00e9 "}, ContentType: new("text/plain"),
	})
	_, _ = c.PutObject(ctx, &ossv2.PutObjectRequest{Bucket: bucket, Key: key})
	if got, err := c.GetObject(ctx, &ossv2.GetObjectRequest{
		Bucket: bucket, Key: key, Range: new("bytes=2-5"), RangeBehavior: new("standard"),
		ResponseContentType: new("a/b;c=d e"),
	}); err == nil {
		_ = got.Body.Close()
	}
	_, _ = c.HeadObject(ctx, &ossv2.HeadObjectRequest{Bucket: bucket, Key: key})
	_, _ = c.ListObjects(ctx, &ossv2.ListObjectsRequest{Bucket: bucket, Prefix: new("a/b c+"), Marker: new("m")})
	_, _ = c.ListObjectsV2(ctx, &ossv2.ListObjectsV2Request{
		Bucket: bucket, Prefix: new("p"), ContinuationToken: new("CgJ-x_.y"), StartAfter: new("s t"),
	})
	_, _ = c.CopyObject(ctx, &ossv2.CopyObjectRequest{Bucket: bucket, Key: new("copy"), SourceKey: key})
	_, _ = c.DeleteMultipleObjects(ctx, &ossv2.DeleteMultipleObjectsRequest{Bucket: bucket, Objects: []ossv2.DeleteObject{{Key: key}}})
	_, _ = c.PutSymlink(ctx, &ossv2.PutSymlinkRequest{Bucket: bucket, Key: key, Target: new("tar get/\u00e9")})
	_, _ = c.AppendObject(ctx, &ossv2.AppendObjectRequest{Bucket: bucket, Key: key, Position: new(int64(42)), Body: strings.NewReader("line")})
	_, _ = c.InitiateMultipartUpload(ctx, &ossv2.InitiateMultipartUploadRequest{Bucket: bucket, Key: key})
	_, _ = c.UploadPart(ctx, &ossv2.UploadPartRequest{Bucket: bucket, Key: key, UploadId: new("0123"), PartNumber: 7, Body: strings.NewReader("part")})
	_, _ = c.CompleteMultipartUpload(ctx, &ossv2.CompleteMultipartUploadRequest{
		Bucket: bucket, Key: key, UploadId: new("0123"),
		CompleteMultipartUpload: &ossv2.CompleteMultipartUpload{Parts: []ossv2.UploadPart{{PartNumber: 7, ETag: new("x")}}},
	})
	_, _ = c.AbortMultipartUpload(ctx, &ossv2.AbortMultipartUploadRequest{Bucket: bucket, Key: key, UploadId: new("0123")})
}

func TestSDKv2HeadersAreAcceptedAndProtectTheRequest(t *testing.T) {
	for _, version := range []ossv2.SignatureVersionType{ossv2.SignatureVersionV1, ossv2.SignatureVersionV4} {
		for _, temporary := range []bool{false, true} {
			for _, additional := range [][]string{nil, {"Range", "user-agent", "content-length"}} {
				t.Run(fmt.Sprintf("v%d/temporary=%t/additional=%d", version*3+1, temporary, len(additional)), func(t *testing.T) {
					rec := record(t)
					sendV2(v2Client(rec.URL, temporary, version, additional...))
					judge(t, rec, temporary, 17)
				})
			}
		}
	}
}

func TestSDKv2PresignedURLsAreAcceptedUntilTheyExpire(t *testing.T) {
	for _, version := range []ossv2.SignatureVersionType{ossv2.SignatureVersionV1, ossv2.SignatureVersionV4} {
		for _, temporary := range []bool{false, true} {
			t.Run(fmt.Sprintf("v%d/temporary=%t", version*3+1, temporary), func(t *testing.T) {
				rec := record(t)
				client := v2Client(rec.URL, temporary, version, "x-additional")
				bucket, key := new("some-bucket"), new(oddKey)
				for _, req := range []any{
					&ossv2.GetObjectRequest{Bucket: bucket, Key: key, ResponseContentType: new("a/b;c=d e")},
					&ossv2.PutObjectRequest{Bucket: bucket, Key: key, Metadata: map[string]string{"A": "b c"}, ContentType: new("text/x")},
					&ossv2.UploadPartRequest{Bucket: bucket, Key: key, PartNumber: 3, UploadId: new("0123")},
				} {
					got, err := client.Presign(context.Background(), req, ossv2.PresignExpires(600*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					header := http.Header{}
					for name, value := range got.SignedHeaders {
						header.Set(name, value)
					}
					send(t, got.Method, got.URL, header)
				}
				judgeURLs(t, rec, temporary)
			})
		}
	}
}
