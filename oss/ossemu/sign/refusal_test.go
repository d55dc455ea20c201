package sign_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

func TestMalformedRequestsAreRefused(t *testing.T) {
	const (
		now   = "2023-12-16T16:20:57Z"
		date  = "Date: Sat, 16 Dec 2023 16:20:57 GMT"
		stamp = "x-oss-date: 20231216T162057Z"
		amz   = "x-amz-date: 20231216T162057Z"
		scope = "Credential=ak/20231216/r/oss/aliyun_v4_request"
		s3    = "Credential=ak/20231216/r/s3/aws4_request"
	)
	sig64 := "Signature=" + strings.Repeat("a", 64)
	v4 := "Authorization: OSS4-HMAC-SHA256 "
	v4url := "?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-signature=a&x-oss-credential=ak/20231216/r/oss/aliyun_v4_request"
	aws := "Authorization: AWS4-HMAC-SHA256 "
	awsURL := "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-" + sig64 + "&X-Amz-Credential=ak/20231216/r/s3/aws4_request&X-Amz-SignedHeaders=host"
	for _, row := range []struct {
		name, target string
		headers      []string
		status       int
		code, ec     string
	}{
		{"unknown scheme", "/", []string{"Authorization: Bearer x", date}, 400, "InvalidArgument", ""},
		{"V2 without signature", "/", []string{"Authorization: OSS2 AccessKeyId:ak", date}, 400, "InvalidArgument", "0002-00000108"},
		{"V2 without key", "/", []string{"Authorization: OSS2 Signature:x", date}, 400, "InvalidArgument", ""},
		{"V2 with an unknown field", "/", []string{"Authorization: OSS2 AccessKeyId:ak,Signature:x,More:1", date}, 400, "InvalidArgument", ""},
		{"V2 with a field twice", "/", []string{"Authorization: OSS2 AccessKeyId:ak,AccessKeyId:ak,Signature:x", date}, 400, "InvalidArgument", ""},
		{"V2 without date", "/", []string{"Authorization: OSS2 AccessKeyId:ak,Signature:x"}, 403, "AccessDenied", "0002-00000503"},
		{"V2 wrong", "/", []string{"Authorization: OSS2 AccessKeyId:ak,Signature:x", date}, 403, "SignatureDoesNotMatch", "0002-00000040"},
		{"V2 URL without signature", "/?x-oss-signature-version=OSS2&x-oss-access-key-id=ak&x-oss-expires=9", nil, 400, "InvalidArgument", "0002-00000117"},
		{"V2 URL without end", "/?x-oss-signature-version=OSS2&x-oss-signature=a&x-oss-access-key-id=ak", nil, 400, "InvalidArgument", "0002-00000113"},
		{"V2 URL that has ended", "/?x-oss-signature-version=OSS2&x-oss-signature=a&x-oss-access-key-id=ak&x-oss-expires=9", nil, 403, "AccessDenied", "0002-00000069"},
		{"V2 URL wrong", "/?x-oss-signature-version=OSS2&x-oss-signature=a&x-oss-access-key-id=ak&x-oss-expires=1802743657", nil, 403, "SignatureDoesNotMatch", "0002-00000040"},
		{"V1 without colon", "/", []string{"Authorization: OSS ak", date}, 400, "InvalidArgument", ""},
		{"V1 without key", "/", []string{"Authorization: OSS :x", date}, 400, "InvalidArgument", ""},
		{"V1 without date", "/", []string{"Authorization: OSS ak:x"}, 403, "AccessDenied", "0002-00000503"},
		{"V1 with unreadable date", "/", []string{"Authorization: OSS ak:x", "Date: yesterday"}, 403, "AccessDenied", "0002-00000505"},
		{"V1 URL with unreadable end", "/?OSSAccessKeyId=ak&Signature=x&Expires=abc", nil, 403, "AccessDenied", "0002-00000070"},
		{"V1 URL without end", "/?OSSAccessKeyId=ak&Signature=x", nil, 403, "AccessDenied", "0002-00000070"},
		{"V4 empty", "/", []string{"Authorization: OSS4-HMAC-SHA256", date}, 400, "InvalidArgument", ""},
		{"V4 without credential", "/", []string{v4 + sig64, date}, 400, "InvalidArgument", ""},
		{"V4 without signature", "/", []string{v4 + scope, date}, 400, "InvalidArgument", ""},
		{"V4 with an unknown field", "/", []string{v4 + scope + "," + sig64 + ",More=1", date}, 400, "InvalidArgument", ""},
		{"V4 with a field twice", "/", []string{v4 + scope + "," + sig64 + "," + sig64, date}, 400, "InvalidArgument", ""},
		{"V4 with a short scope", "/", []string{v4 + "Credential=ak/r/oss/aliyun_v4_request," + sig64, date}, 400, "InvalidArgument", "0002-00000213"},
		{"V4 with a strange end of scope", "/", []string{v4 + "Credential=ak/20231216/r/oss/abc," + sig64, date}, 400, "InvalidArgument", "0002-00000213"},
		{"V4 for another product", "/", []string{v4 + "Credential=ak/20231216/r/ecs/aliyun_v4_request," + sig64, date}, 400, "InvalidArgument", "0002-00000227"},
		{"V4 with a payload hash", "/", []string{v4 + scope + "," + sig64, stamp, "x-oss-content-sha256: " + emptySHA}, 400, "InvalidArgument", "0002-00000214"},
		{"V4 without date", "/", []string{v4 + scope + "," + sig64}, 403, "AccessDenied", "0002-00000503"},
		{"V4 with unreadable date", "/", []string{v4 + scope + "," + sig64, "x-oss-date: 2023"}, 403, "AccessDenied", "0002-00000505"},
		{"V4 wrong", "/", []string{v4 + scope + "," + sig64, stamp}, 403, "SignatureDoesNotMatch", "0002-00000040"},
		{"V4 without an additional header", "/", []string{v4 + scope + ",AdditionalHeaders=host;range," + sig64, stamp}, 400, "InvalidArgument", ""},
		{"V4 URL without an additional header", "/" + v4url + "&x-oss-date=20231216T162057Z&x-oss-expires=9&x-oss-additional-headers=range", nil, 400, "InvalidArgument", ""},
		{"V2 without an additional header", "/", []string{"Authorization: OSS2 AccessKeyId:ak,AdditionalHeaders:range,Signature:x", date}, 400, "InvalidArgument", ""},
		{"V4 URL without signature", "/?x-oss-signature-version=OSS4-HMAC-SHA256", nil, 400, "InvalidArgument", "0002-00000219"},
		{"V4 URL without date", "/" + v4url + "&x-oss-expires=9", nil, 400, "InvalidArgument", ""},
		{"V4 URL with an RFC 1123 date", "/" + v4url + "&x-oss-expires=9&x-oss-date=Sat,%2016%20Dec%202023%2016:20:57%20GMT", nil, 403, "AccessDenied", "0002-00000505"},
		{"V4 URL without end", "/" + v4url + "&x-oss-date=20231216T162057Z", nil, 400, "InvalidArgument", "0002-00000215"},
		{"V4 URL for no time", "/" + v4url + "&x-oss-date=20231216T162057Z&x-oss-expires=0", nil, 400, "InvalidArgument", "0002-00000232"},
		{"V4 URL for too long", "/" + v4url + "&x-oss-date=20231216T162057Z&x-oss-expires=604801", nil, 400, "InvalidArgument", "0002-00000232"},
		{"V4 URL wrong", "/" + v4url + "&x-oss-date=20231216T162057Z&x-oss-expires=604800", nil, 403, "SignatureDoesNotMatch", "0002-00000040"},
		{"SigV4 without commas", "/", []string{aws + s3 + "SignedHeaders=host" + sig64, amz}, 400, "AuthorizationHeaderMalformed", "0002-00000406"},
		{"SigV4 with a short signature", "/", []string{aws + s3 + ",SignedHeaders=host,Signature=1", amz}, 400, "AuthorizationHeaderMalformed", "0002-00000408"},
		{"SigV4 with a short scope", "/", []string{aws + "Credential=ak/r/s3/aws4_request,SignedHeaders=host," + sig64, amz}, 400, "AuthorizationHeaderMalformed", "0002-00000404"},
		{"SigV4 for another service", "/", []string{aws + "Credential=ak/20231216/r/sqs/aws4_request,SignedHeaders=host," + sig64, amz}, 400, "AuthorizationHeaderMalformed", ""},
		{"SigV4 without host", "/", []string{aws + s3 + ",SignedHeaders=x-amz-date," + sig64, amz}, 400, "AuthorizationHeaderMalformed", "0002-00000426"},
		{"SigV4 with an unsigned header", "/", []string{aws + s3 + ",SignedHeaders=host," + sig64, amz}, 403, "AccessDenied", ""},
		{"SigV4 without payload", "/", []string{aws + s3 + ",SignedHeaders=host;x-amz-date," + sig64, amz}, 400, "InvalidRequest", ""},
		{"SigV4 without date", "/", []string{aws + s3 + ",SignedHeaders=host;x-amz-content-sha256," + sig64, "x-amz-content-sha256: UNSIGNED-PAYLOAD"}, 403, "AccessDenied", "0002-00000503"},
		{"SigV4 wrong", "/", []string{aws + s3 + ",SignedHeaders=host;x-amz-content-sha256;x-amz-date," + sig64, amz, "x-amz-content-sha256: UNSIGNED-PAYLOAD"}, 403, "SignatureDoesNotMatch", "0002-00000429"},
		{"SigV4 URL with another algorithm", "/?X-Amz-Signature=a", nil, 400, "AuthorizationQueryParametersError", ""},
		{"SigV4 URL with a short signature", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=a", nil, 400, "AuthorizationQueryParametersError", "0002-00000423"},
		{"SigV4 URL without credential", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-" + sig64, nil, 400, "AuthorizationQueryParametersError", "0002-00000413"},
		{"SigV4 URL without host", "/" + strings.TrimSuffix(awsURL, "host"), nil, 400, "AuthorizationQueryParametersError", "0002-00000426"},
		{"SigV4 URL without date", "/" + awsURL, nil, 400, "AuthorizationQueryParametersError", "0002-00000414"},
		{"SigV4 URL without end", "/" + awsURL + "&X-Amz-Date=20231216T162057Z", nil, 400, "AuthorizationQueryParametersError", "0002-00000416"},
		{"SigV4 URL for too long", "/" + awsURL + "&X-Amz-Date=20231216T162057Z&X-Amz-Expires=604801", nil, 400, "AuthorizationQueryParametersError", ""},
		{"SigV4 URL for no time", "/" + awsURL + "&X-Amz-Date=20231216T162057Z&X-Amz-Expires=0", nil, 403, "SignatureDoesNotMatch", "0002-00000429"},
		{"SigV2 without colon", "/", []string{"Authorization: AWS ak", date}, 400, "AuthorizationHeaderMalformed", ""},
		{"SigV2 without date", "/", []string{"Authorization: AWS ak:x"}, 403, "AccessDenied", "0002-00000503"},
		{"SigV2 URL without end", "/?AWSAccessKeyId=ak&Signature=x", nil, 403, "AccessDenied", "0002-00000070"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := sign.New(sign.Config{Keys: pairOf("ak", "sk"), Now: at(t, now)})
			lines := append([]string{"GET " + row.target + " HTTP/1.1", "Host: h"}, row.headers...)
			e := mustRefuse(t, v, request(t, "", lines...), "", "", row.code)
			if e.Status != row.status || e.EC != row.ec || e.Message == "" {
				t.Errorf("refused with %+v, want status %d, EC %q", e, row.status, row.ec)
			}
			if e.Details["Endpoint"] != "" {
				t.Error("the refusal names an endpoint, which sends some clients there")
			}
		})
	}
}

func TestUnsignedRequestsAreAnonymous(t *testing.T) {
	v := sign.New(sign.Config{Keys: keys{}})
	for _, row := range []struct {
		line, header string
		s3           bool
	}{
		{"HEAD /b HTTP/1.1", "X: y", false},
		{"GET /b/k?acl HTTP/1.1", "x-amz-date: 20231216T162057Z", true},
		{"GET /b/Signature?prefix=Signature HTTP/1.1", "x-oss-meta-a: b", false},
	} {
		id := mustAccept(t, v, request(t, "", row.line, "Host: h", row.header), "b", "")
		if !id.Anonymous || id.AccessKeyID != "" || id.S3 != row.s3 {
			t.Errorf("%s: accepted as %+v", row.line, id)
		}
	}
}

// A client that sends x-oss-date may sign it in the place of Date or leave the
// Date line to the Date header. Both are seen.
func TestV1TakesTheOSSDateEitherWay(t *testing.T) {
	now := at(t, "2023-12-16T16:20:57Z")
	v := sign.New(sign.Config{Keys: pairOf("ak", "sk"), Now: now})
	const stamp = "20231216T162057Z"
	for _, row := range []struct{ date, line string }{
		{"", stamp},
		{"", ""},
		{"Sat, 16 Dec 2023 16:20:57 GMT", stamp},
		{"Sat, 16 Dec 2023 16:20:57 GMT", "Sat, 16 Dec 2023 16:20:57 GMT"},
	} {
		r := request(t, "", "GET /k?acl HTTP/1.1", "Host: b.h", "x-oss-date: "+stamp)
		if row.date != "" {
			r.Header.Set("Date", row.date)
		}
		r.Header.Set("Authorization", "OSS ak:"+v1Sum("sk", "GET", row.line, "x-oss-date:"+stamp+"\n/b/k?acl"))
		mustAccept(t, v, r, "b", "k")
		r.Header.Set("Authorization", "OSS ak:"+v1Sum("sk", "GET", "another", "x-oss-date:"+stamp+"\n/b/k?acl"))
		mustRefuse(t, v, r, "b", "k", "SignatureDoesNotMatch")
	}
}

func TestSigV4SignsThePathAsSent(t *testing.T) {
	v := sign.New(sign.Config{Keys: pairOf(s3ID, s3Secret)})
	for _, row := range []struct{ sent, canonical string }{
		{"/b", "/b"},
		{"/b/", "/b/"},
		{"/b/a%2Fb//c/../d", "/b/a%2Fb//c/../d"},
		{"/b/a(1)'!*~", "/b/a%281%29%27%21%2A~"},
		{"/b/%61%7e%c3%a9+", "/b/a~%C3%A9%2B"},
	} {
		r := s3Request(t, "GET", row.sent, "")
		signed := r.Clone(r.Context())
		signed.URL.RawPath, signed.URL.Path = row.canonical, unescapePath(t, row.canonical)
		(&s3Signer{now: time.Now()}).sign(signed, emptySHA)
		r.Header = signed.Header
		mustAccept(t, v, r, "b", "")
	}
}

func TestSigV2ResourceNamesTheBucketInEveryStyle(t *testing.T) {
	v := sign.New(sign.Config{Keys: pairOf(s3ID, s3Secret)})
	for _, row := range []struct{ target, bucket, key, resource string }{
		{"/", "", "", "/"},
		{"/b", "b", "", "/b"},
		{"/b/", "b", "", "/b/"},
		{"/", "b", "", "/b/"},
		{"/b/k", "b", "k", "/b/k"},
		{"/k", "b", "k", "/b/k"},
		{"/b/k", "b", "b/k", "/b/b/k"},
		{"/b/%C3%A9%20x?uploadId=a+b&partNumber=2&max-parts=9", "b", "\u00e9 x", "/b/%C3%A9%20x?partNumber=2&uploadId=a b"},
	} {
		r := s3Request(t, "GET", row.target, "")
		r.Header.Set("X-Amz-Date", time.Now().UTC().Format(http.TimeFormat))
		r.Header.Set("X-Amz-Meta-A", "b")
		signV2(r, row.resource)
		if id := mustAccept(t, v, r, row.bucket, row.key); !id.S3 {
			t.Errorf("%s: accepted as %+v", row.target, id)
		}
		r.Header.Set("X-Amz-Meta-A", "c")
		mustRefuse(t, v, r, row.bucket, row.key, "SignatureDoesNotMatch")
	}
}

// Signing keys are derived once a day and kept. One that was kept must not
// outlive the secret it came from.
func TestAReplacedSecretTakesEffectAtOnce(t *testing.T) {
	known := pairOf(s3ID, s3Secret)
	v := sign.New(sign.Config{Keys: known})
	r := s3Request(t, "GET", "/b/k", "")
	(&s3Signer{now: time.Now()}).sign(r, emptySHA)
	mustAccept(t, v, r, "b", "k")
	known[s3ID] = sign.Credential{AccessKeyID: s3ID, AccessKeySecret: "another"}
	mustRefuse(t, v, r, "b", "k", "SignatureDoesNotMatch")
}
