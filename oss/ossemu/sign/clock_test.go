package sign_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

// header finds the vector whose name is given.
func named(t *testing.T, name string) vector {
	t.Helper()
	for _, vec := range vectors() {
		if vec.name == name {
			return vec
		}
	}
	t.Fatalf("no vector %q", name)
	return vector{}
}

func TestClocksMayDifferByFifteenMinutes(t *testing.T) {
	for _, row := range []struct{ name, signed, ec string }{
		{"OSS V1 header", "2005-11-17T18:49:58Z", "0002-00000504"},
		{"OSS V4 header", "2023-12-16T16:20:57Z", "0002-00000504"},
		{"SigV4 get", "2013-05-24T00:00:00Z", "0002-00000501"},
		{"SigV2 get", "2007-03-27T19:36:42Z", "0002-00000501"},
	} {
		vec, signed := named(t, row.name), at(t, row.signed)()
		for _, d := range []time.Duration{-15 * time.Minute, 0, 15 * time.Minute} {
			v := sign.New(sign.Config{Keys: vec.keys, Now: func() time.Time { return signed.Add(d) }})
			mustAccept(t, v, request(t, "", vec.lines...), vec.bucket, vec.key)
		}
		for _, d := range []time.Duration{-15*time.Minute - time.Second, 15*time.Minute + time.Second} {
			v := sign.New(sign.Config{Keys: vec.keys, Now: func() time.Time { return signed.Add(d) }})
			e := mustRefuse(t, v, request(t, "", vec.lines...), vec.bucket, vec.key, "RequestTimeTooSkewed")
			if e.EC != row.ec || e.Status != http.StatusForbidden || e.Details["ServerTime"] == "" || e.Details["RequestTime"] == "" {
				t.Errorf("%s at %v: refused with %+v", row.name, d, e)
			}
		}
	}
}

func TestPresignedURLsEndWhenTheySay(t *testing.T) {
	for _, row := range []struct{ name, last, ec string }{
		{"OSS V1 URL", "2023-11-12T16:43:40Z", "0002-00000069"},
		{"OSS V4 URL", "2023-12-17T03:04:36Z", "0002-00000236"},
		{"SigV4 URL", "2013-05-25T00:00:00Z", "0002-00000418"},
		{"SigV2 URL", "2007-03-29T03:40:20Z", "0002-00000069"},
	} {
		vec, last := named(t, row.name), at(t, row.last)()
		v := sign.New(sign.Config{Keys: vec.keys, Now: func() time.Time { return last }})
		mustAccept(t, v, request(t, "", vec.lines...), vec.bucket, vec.key)
		v = sign.New(sign.Config{Keys: vec.keys, Now: func() time.Time { return last.Add(time.Second) }})
		e := mustRefuse(t, v, request(t, "", vec.lines...), vec.bucket, vec.key, "AccessDenied")
		if e.EC != row.ec || e.Message != "Request has expired." {
			t.Errorf("%s: refused with %+v", row.name, e)
		}
	}
}

func TestV4URLsAreNotValidBeforeTheyWereSigned(t *testing.T) {
	for name, signed := range map[string]string{"OSS V4 URL": "2023-12-17T02:54:37Z", "SigV4 URL": "2013-05-24T00:00:00Z"} {
		vec, signed := named(t, name), at(t, signed)()
		v := sign.New(sign.Config{Keys: vec.keys, Now: func() time.Time { return signed.Add(-16 * time.Minute) }})
		mustRefuse(t, v, request(t, "", vec.lines...), vec.bucket, vec.key, "RequestTimeTooSkewed")
	}
}

func TestTemporaryCredentialsEnd(t *testing.T) {
	vec := named(t, "OSS V4 header with token")
	end := at(t, vec.now)()
	c := vec.keys["ak"]
	c.Expires = end
	for d, want := range map[time.Duration]string{-time.Second: "", 0: "SecurityTokenExpired", time.Second: "SecurityTokenExpired"} {
		v := sign.New(sign.Config{Keys: keys{"ak": c}, Now: func() time.Time { return end.Add(d) }})
		r := request(t, "", vec.lines...)
		if want == "" {
			mustAccept(t, v, r, vec.bucket, vec.key)
			continue
		}
		if e := mustRefuse(t, v, r, vec.bucket, vec.key, want); e.Status != http.StatusForbidden || e.EC != "0002-00000007" {
			t.Errorf("refused with %+v", e)
		}
	}
}

func TestS3TokensAreJudgedWhereverTheyStand(t *testing.T) {
	now := time.Now()
	for _, row := range []struct{ sent, known, want string }{
		{"tok", "tok", ""},
		{"tok", "other", "InvalidSecurityToken"},
		{"", "tok", "InvalidAccessKeyId"},
		{"tok", "", "InvalidSecurityToken"},
	} {
		v := sign.New(sign.Config{Keys: keys{s3ID: {AccessKeyID: s3ID, AccessKeySecret: s3Secret, SecurityToken: row.known}}})
		header := s3Request(t, "GET", "/b/k", "")
		(&s3Signer{now: now, token: row.sent}).sign(header, emptySHA)

		v2 := s3Request(t, "GET", "/b/k", "")
		v2.Header.Set("Date", now.UTC().Format(http.TimeFormat))
		if row.sent != "" {
			v2.Header.Set("X-Amz-Security-Token", row.sent)
		}
		signV2(v2, "/b/k")
		for _, r := range []*http.Request{header, v2} {
			if row.want == "" {
				mustAccept(t, v, r, "b", "k")
			} else {
				mustRefuse(t, v, r, "b", "k", row.want)
			}
		}
	}
}

func TestTheDayOfTheScopeIsThatOfTheDate(t *testing.T) {
	for name, want := range map[string]string{
		"OSS V4 header": "InvalidArgument", "OSS V4 URL": "InvalidArgument",
		"SigV4 get": "AuthorizationHeaderMalformed", "SigV4 URL": "AuthorizationQueryParametersError",
	} {
		vec := named(t, name)
		v := sign.New(sign.Config{Keys: vec.keys, Now: at(t, vec.now)})
		raw := strings.Join(vec.lines, "\n")
		for _, day := range []string{"20231216/", "20231217%2F", "20130524/", "20130524%2F"} {
			raw = strings.Replace(raw, day, "20111111"+day[8:], 1)
		}
		mustRefuse(t, v, request(t, "", strings.Split(raw, "\n")...), vec.bucket, vec.key, want)
	}
}

func TestTheRegionOfTheScopeIsJudgedWhenOneIsConfigured(t *testing.T) {
	for _, row := range []struct{ name, right, want string }{
		{"OSS V4 header", "cn-hangzhou", "InvalidArgument"},
		{"OSS V4 URL", "cn-hangzhou", "InvalidArgument"},
		{"SigV4 get", "us-east-1", "AuthorizationHeaderMalformed"},
		{"SigV4 URL", "us-east-1", "AuthorizationQueryParametersError"},
	} {
		vec := named(t, row.name)
		v := sign.New(sign.Config{Keys: vec.keys, Now: at(t, vec.now), Region: row.right})
		mustAccept(t, v, request(t, "", vec.lines...), vec.bucket, vec.key)
		v = sign.New(sign.Config{Keys: vec.keys, Now: at(t, vec.now), Region: "elsewhere"})
		if e := mustRefuse(t, v, request(t, "", vec.lines...), vec.bucket, vec.key, row.want); e.Status != http.StatusBadRequest {
			t.Errorf("%s: refused with %+v", row.name, e)
		}
	}
}
