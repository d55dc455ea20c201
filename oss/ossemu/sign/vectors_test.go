package sign_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

// A vector is a request with a signature that somebody else has published.
type vector struct {
	name        string
	keys        keys
	now         string
	lines       []string
	bucket, key string
	want        sign.Identity
}

const (
	docSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	docID     = "AKIAIOSFODNN7EXAMPLE"
	emptySHA  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	docScope  = "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
	longQuery = "param1=value1&%2Bparam1=value3&%7Cparam1=value4&%2Bparam2=&%7Cparam2=&param2="
)

func vectors() []vector {
	ak := pairOf("ak", "sk")
	withToken := keys{"ak": {AccessKeyID: "ak", AccessKeySecret: "sk", SecurityToken: "token"}}
	doc := pairOf(docID, docSecret)
	return []vector{
		{
			name: "OSS V1 header", keys: pairOf("44CF9590006BF252F707", "OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV"),
			now: "2005-11-17T18:49:58Z", bucket: "oss-example", key: "nelson",
			lines: []string{
				"PUT /nelson HTTP/1.1", "Host: oss-example.oss-cn-hangzhou.aliyuncs.com",
				"Content-Md5: ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=", "Content-Type: text/html",
				"Date: Thu, 17 Nov 2005 18:49:58 GMT", "X-OSS-Meta-Author: foo@bar.com", "X-OSS-Magic: abracadabra",
				"Authorization: OSS 44CF9590006BF252F707:26NBxoKdsyly4EDv6inkoDft/yA=",
			},
			want: sign.Identity{AccessKeyID: "44CF9590006BF252F707"},
		},
		{
			name: "OSS V1 URL", keys: ak, now: "2023-11-12T16:43:00Z", bucket: "bucket", key: "key",
			lines: []string{
				"GET /key?Expires=1699807420&OSSAccessKeyId=ak&Signature=dcLTea%2BYh9ApirQ8o8dOPqtvJXQ%3D&versionId=versionId HTTP/1.1",
				"Host: bucket.oss-cn-hangzhou.aliyuncs.com",
			},
			want: sign.Identity{AccessKeyID: "ak", Presigned: true},
		},
		{
			name: "OSS V4 header", keys: ak, now: "2023-12-16T16:20:57Z", bucket: "bucket", key: "1234+-/123/1.txt",
			lines: []string{
				"PUT /1234%2B-/123/1.txt?" + longQuery + " HTTP/1.1", "Host: bucket.oss-cn-hangzhou.aliyuncs.com",
				"x-oss-head1: value", "abc: value", "ZAbc: value", "XYZ: value", "Content-Type: text/plain",
				"x-oss-content-sha256: UNSIGNED-PAYLOAD", "x-oss-date: 20231216T162057Z",
				"Authorization: OSS4-HMAC-SHA256 Credential=ak/20231216/cn-hangzhou/oss/aliyun_v4_request," +
					"Signature=e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe",
			},
			want: sign.Identity{AccessKeyID: "ak"},
		},
		{
			name: "OSS V4 header, cloud box, space after the comma", keys: ak, now: "2023-12-16T16:20:57Z", bucket: "bucket", key: "1234+-/123/1.txt",
			lines: []string{
				"PUT /1234%2B-/123/1.txt?" + longQuery + " HTTP/1.1", "Host: bucket.cb-123.cn-hangzhou.oss-cloudbox.aliyuncs.com",
				"x-oss-head1: value", "abc: value", "ZAbc: value", "XYZ: value", "Content-Type: text/plain",
				"x-oss-content-sha256: UNSIGNED-PAYLOAD", "x-oss-date: 20231216T162057Z",
				"Authorization: OSS4-HMAC-SHA256 Credential=ak/20231216/cb-123/oss-cloudbox/aliyun_v4_request, " +
					"Signature=94ce1f12c17d148ea681030275a94449d3357f5b5b21133996eec80af3e08a43",
			},
			want: sign.Identity{AccessKeyID: "ak"},
		},
		{
			name: "OSS V4 header with token", keys: withToken, now: "2023-12-17T03:47:36Z", bucket: "bucket", key: "1234+-/123/1.txt",
			lines: []string{
				"PUT /1234%2B-/123/1.txt?" + longQuery + " HTTP/1.1", "Host: bucket.oss-cn-hangzhou.aliyuncs.com",
				"x-oss-head1: value", "abc: value", "ZAbc: value", "XYZ: value", "Content-Type: text/plain",
				"x-oss-content-sha256: UNSIGNED-PAYLOAD", "x-oss-date: 20231217T034736Z", "x-oss-security-token: token",
				"Authorization: OSS4-HMAC-SHA256 Credential=ak/20231217/cn-hangzhou/oss/aliyun_v4_request," +
					"Signature=b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea",
			},
			want: sign.Identity{AccessKeyID: "ak"},
		},
		{
			name: "OSS V4 header with additional headers", keys: ak, now: "2023-12-16T17:20:00Z", bucket: "bucket", key: "1234+-/123/1.txt",
			lines: []string{
				"PUT /1234%2B-/123/1.txt?" + longQuery + " HTTP/1.1", "Host: bucket.oss-cn-hangzhou.aliyuncs.com",
				"x-oss-head1: value", "abc: value", "ZAbc: value", "XYZ: value", "Content-Type: text/plain",
				"x-oss-content-sha256: UNSIGNED-PAYLOAD", "x-oss-date: 20231216T172512Z",
				"Authorization: OSS4-HMAC-SHA256 Credential=ak/20231216/cn-hangzhou/oss/aliyun_v4_request," +
					"AdditionalHeaders=abc;zabc,Signature=4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f",
			},
			want: sign.Identity{AccessKeyID: "ak"},
		},
		{
			name: "OSS V4 URL", keys: ak, now: "2023-12-17T02:55:00Z", bucket: "bucket", key: "1234+-/123/1.txt",
			lines: []string{
				"PUT /1234%2B-/123/1.txt?" + longQuery + "&x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-date=20231217T025437Z&x-oss-expires=599" +
					"&x-oss-credential=ak%2F20231217%2Fcn-hangzhou%2Foss%2Faliyun_v4_request" +
					"&x-oss-signature=a39966c61718be0d5b14e668088b3fa07601033f6518ac7b523100014269c0fe HTTP/1.1",
				"Host: bucket.oss-cn-hangzhou.aliyuncs.com", "x-oss-head1: value", "abc: value", "ZAbc: value", "XYZ: value",
				"Content-Type: application/octet-stream",
			},
			want: sign.Identity{AccessKeyID: "ak", Presigned: true},
		},
		{
			name: "SigV4 get", keys: doc, now: "2013-05-24T00:00:00Z", bucket: "examplebucket", key: "test.txt",
			lines: []string{
				"GET /test.txt HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "Range: bytes=0-9",
				"x-amz-content-sha256: " + emptySHA, "x-amz-date: 20130524T000000Z",
				docScope + "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date," +
					"Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV4 put", keys: doc, now: "2013-05-24T00:10:00Z", bucket: "examplebucket", key: "test$file.text",
			lines: []string{
				"PUT /test$file.text HTTP/1.1", "Host: examplebucket.s3.amazonaws.com", "Date: Fri, 24 May 2013 00:00:00 GMT",
				"x-amz-date: 20130524T000000Z", "x-amz-storage-class: REDUCED_REDUNDANCY",
				"x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
				docScope + "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class," +
					"Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV4 sub-resource", keys: doc, now: "2013-05-23T23:46:00Z", bucket: "examplebucket",
			lines: []string{
				"GET /?lifecycle HTTP/1.1", "Host: examplebucket.s3.amazonaws.com",
				"x-amz-content-sha256: " + emptySHA, "x-amz-date: 20130524T000000Z",
				docScope + "SignedHeaders=host;x-amz-content-sha256;x-amz-date," +
					"Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV4 list", keys: doc, now: "2013-05-24T00:00:00Z", bucket: "examplebucket",
			lines: []string{
				"GET /?max-keys=2&prefix=J HTTP/1.1", "Host: examplebucket.s3.amazonaws.com",
				"x-amz-content-sha256: " + emptySHA, "x-amz-date: 20130524T000000Z",
				docScope + " SignedHeaders=host;x-amz-content-sha256;x-amz-date, " +
					"Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV4 URL", keys: doc, now: "2013-05-24T23:59:59Z", bucket: "examplebucket", key: "test.txt",
			lines: []string{
				"GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request" +
					"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host" +
					"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1",
				"Host: examplebucket.s3.amazonaws.com",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true, Presigned: true},
		},
		{
			name: "SigV2 get", keys: doc, now: "2007-03-27T19:36:42Z", bucket: "johnsmith", key: "photos/puppy.jpg",
			lines: []string{
				"GET /photos/puppy.jpg HTTP/1.1", "Host: johnsmith.s3.amazonaws.com", "Date: Tue, 27 Mar 2007 19:36:42 +0000",
				"Authorization: AWS AKIAIOSFODNN7EXAMPLE:bWq2s1WEIj+Ydj0vQ697zp+IXMU=",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV2 put", keys: doc, now: "2007-03-27T21:15:45Z", bucket: "johnsmith", key: "photos/puppy.jpg",
			lines: []string{
				"PUT /photos/puppy.jpg HTTP/1.1", "Host: johnsmith.s3.amazonaws.com", "Date: Tue, 27 Mar 2007 21:15:45 +0000",
				"Content-Type: image/jpeg", "Content-Length: 94328",
				"Authorization: AWS AKIAIOSFODNN7EXAMPLE:MyyxeRY7whkBe+bq8fHCL/2kKUg=",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV2 list", keys: doc, now: "2007-03-27T19:42:41Z", bucket: "johnsmith",
			lines: []string{
				"GET /?prefix=photos&max-keys=50&marker=puppy HTTP/1.1", "Host: johnsmith.s3.amazonaws.com",
				"User-Agent: Mozilla/5.0", "Date: Tue, 27 Mar 2007 19:42:41 +0000",
				"Authorization: AWS AKIAIOSFODNN7EXAMPLE:htDYFYduRNen8P9ZfE/s9SuKy0U=",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV2 sub-resource", keys: doc, now: "2007-03-27T19:44:46Z", bucket: "johnsmith",
			lines: []string{
				"GET /?acl HTTP/1.1", "Host: johnsmith.s3.amazonaws.com", "Date: Tue, 27 Mar 2007 19:44:46 +0000",
				"Authorization: AWS AKIAIOSFODNN7EXAMPLE:c2WLPFtWHVgbEmeEG93a4cG37dM=",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV2 all services", keys: doc, now: "2007-03-28T01:29:59Z",
			lines: []string{
				"GET / HTTP/1.1", "Host: s3.amazonaws.com", "Date: Wed, 28 Mar 2007 01:29:59 +0000",
				"Authorization: AWS AKIAIOSFODNN7EXAMPLE:qGdzdERIC03wnaRNKh6OqZehG9s=",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV2 escaped path", keys: doc, now: "2007-03-28T01:49:49Z", bucket: "dictionary", key: "fran\u00e7ais/pr\u00e9f\u00e8re",
			lines: []string{
				"GET /dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re HTTP/1.1", "Host: s3.amazonaws.com",
				"Date: Wed, 28 Mar 2007 01:49:49 +0000",
				"Authorization: AWS AKIAIOSFODNN7EXAMPLE:DNEZGsoieTZ92F3bUfSPQcbGmlM=",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true},
		},
		{
			name: "SigV2 URL", keys: doc, now: "2007-03-27T00:00:00Z", bucket: "johnsmith", key: "photos/puppy.jpg",
			lines: []string{
				"GET /photos/puppy.jpg?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620 HTTP/1.1",
				"Host: johnsmith.s3.amazonaws.com",
			},
			want: sign.Identity{AccessKeyID: docID, S3: true, Presigned: true},
		},
	}
}

func TestPublishedSignaturesAreAccepted(t *testing.T) {
	for _, vec := range vectors() {
		t.Run(vec.name, func(t *testing.T) {
			v := sign.New(sign.Config{Keys: vec.keys, Now: at(t, vec.now)})
			got := mustAccept(t, v, request(t, "", vec.lines...), vec.bucket, vec.key)
			if got.AccessKeyID != vec.want.AccessKeyID || got.S3 != vec.want.S3 || got.Presigned != vec.want.Presigned || got.Anonymous {
				t.Errorf("accepted as %+v, want %+v", got, vec.want)
			}
		})
	}
}

// Every published request is refused once its key, its secret or one signed
// piece of it is another.
func TestPublishedSignaturesProtectTheRequest(t *testing.T) {
	for _, vec := range vectors() {
		t.Run(vec.name, func(t *testing.T) {
			v := sign.New(sign.Config{Keys: vec.keys, Now: at(t, vec.now)})
			s := sent{request: request(t, "", vec.lines...), bucket: vec.bucket, key: vec.key}
			if n := refuseEachChange(t, v, s); n < 3 {
				t.Errorf("only %d changes tried", n)
			}

			forged := keys{}
			for id, c := range vec.keys {
				c.AccessKeySecret += "x"
				forged[id] = c
			}
			e := mustRefuse(t, sign.New(sign.Config{Keys: forged, Now: at(t, vec.now)}), s.again(), vec.bucket, vec.key, "SignatureDoesNotMatch")
			if e.Status != http.StatusForbidden || e.EC == "" || e.Details["SignatureProvided"] == "" || e.Details["StringToSign"] == "" {
				t.Errorf("the refusal does not help: %+v", e)
			}
			e = mustRefuse(t, sign.New(sign.Config{Keys: keys{}, Now: at(t, vec.now)}), s.again(), vec.bucket, vec.key, "InvalidAccessKeyId")
			if e.Status != http.StatusForbidden || e.EC != "0002-00000902" {
				t.Errorf("unknown key: %+v", e)
			}
		})
	}
}

// refuseEachChange changes one signed piece of s after the other and wants each
// change refused. It returns how many it has tried.
func refuseEachChange(t *testing.T, v *sign.Verifier, s sent) int {
	t.Helper()
	mustAccept(t, v, s.again(), s.bucket, s.key)
	tried := 0
	refused := func(what string, r *http.Request, bucket, key string) {
		t.Helper()
		tried++
		if id, e := v.Verify(r, bucket, key); e == nil && !id.Anonymous {
			t.Errorf("%s: still accepted as %+v", what, id)
		}
	}
	s3 := strings.HasPrefix(s.request.Header.Get("Authorization"), "AWS") ||
		strings.Contains(s.request.URL.RawQuery, "AWSAccessKeyId") || strings.Contains(s.request.URL.RawQuery, "X-Amz-")

	r := s.again()
	r.Method = "PATCH"
	refused("method", r, s.bucket, s.key)
	if s3 {
		r = s.again()
		r.URL.Path, r.URL.RawPath = r.URL.Path+"x", ""
		refused("path", r, s.bucket, s.key+"x")
	} else {
		refused("bucket", s.again(), s.bucket+"x", s.key)
		if s.bucket != "" {
			refused("key", s.again(), s.bucket, s.key+"x")
		}
	}

	signed := signedNames(s.request)
	for name := range s.request.Header {
		if !signed(name) {
			continue
		}
		r := s.again()
		r.Header.Set(name, bump(r.Header.Get(name)))
		refused("changed header "+name, r, s.bucket, s.key)
		r = s.again()
		r.Header.Del(name)
		refused("header "+name+" removed", r, s.bucket, s.key)
	}
	r = s.again()
	r.Header.Set("X-Oss-Meta-Added", "value")
	r.Header.Set("X-Amz-Meta-Added", "value")
	refused("added header", r, s.bucket, s.key)

	for _, name := range []string{"uploads", "acl"} {
		r = s.again()
		if r.URL.Query().Has(name) {
			continue
		}
		r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+name, "&")
		refused("added parameter "+name, r, s.bucket, s.key)
	}
	v4 := strings.Contains(s.request.Header.Get("Authorization"), "OSS2 ") || strings.Contains(s.request.URL.RawQuery, "=OSS2") ||
		strings.Contains(s.request.Header.Get("Authorization"), "4-HMAC-SHA256") || strings.Contains(s.request.URL.RawQuery, "4-HMAC-SHA256")
	unsignedByOldSchemes := "prefix max-keys marker list-type delimiter encoding-type start-after"
	for part := range strings.SplitSeq(s.request.URL.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		if part == "" || !v4 && strings.Contains(unsignedByOldSchemes, name) {
			continue
		}
		r := s.again()
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, part, part+"1", 1)
		refused("changed parameter "+name, r, s.bucket, s.key)
		r = s.again()
		r.URL.RawQuery = strings.Trim(strings.Replace(r.URL.RawQuery, part, "", 1), "&")
		refused("parameter "+name+" removed", r, s.bucket, s.key)
	}
	return tried
}

// signedNames tells which headers the signature of r covers.
func signedNames(r *http.Request) func(name string) bool {
	auth, query := r.Header.Get("Authorization"), r.URL.Query()
	list := query.Get("X-Amz-SignedHeaders") + ";" + query.Get("x-oss-additional-headers")
	for _, field := range []string{"SignedHeaders=", "AdditionalHeaders=", "AdditionalHeaders:"} {
		if _, rest, ok := strings.Cut(auth, field); ok {
			names, _, _ := strings.Cut(rest, ",")
			list += ";" + names
		}
	}
	sigV4 := strings.Contains(auth, "AWS4") || query.Has("X-Amz-Signature")
	ossV4 := strings.Contains(auth, "OSS4") || query.Has("x-oss-signature")
	return func(name string) bool {
		name = strings.ToLower(name)
		switch {
		case name == "authorization":
			return true
		case strings.Contains(";"+list+";", ";"+name+";"):
			return true
		case sigV4:
			return false
		case name == "content-type", name == "content-md5":
			return true
		case name == "date":
			// A date is signed where no other header or parameter stands for it.
			return auth != "" && !ossV4 && r.Header.Get("X-Amz-Date") == "" && r.Header.Get("X-Oss-Date") == ""
		}
		return strings.HasPrefix(name, "x-oss-") || strings.HasPrefix(name, "x-amz-")
	}
}

// bump changes the last letter or digit of a value, so that times stay times.
func bump(value string) string {
	for i := len(value) - 1; i >= 0; i-- {
		c := value[i]
		if '0' <= c && c <= '8' || 'a' <= c && c <= 'y' {
			return value[:i] + string(c+1) + value[i+1:]
		}
	}
	return value + "x"
}
