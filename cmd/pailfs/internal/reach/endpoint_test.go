package reach

import (
	"testing"
)

func TestEndpointHasOneSpellingForTheCache(t *testing.T) {
	for endpoint, want := range map[string]string{
		"oss-cn-hangzhou.aliyuncs.com":               "oss-cn-hangzhou.aliyuncs.com",
		"https://oss-cn-hangzhou.aliyuncs.com/":      "oss-cn-hangzhou.aliyuncs.com",
		"http://OSS-cn-Hangzhou.aliyuncs.com:80":     "oss-cn-hangzhou.aliyuncs.com",
		" https://oss-cn-hangzhou.aliyuncs.com.:443": "oss-cn-hangzhou.aliyuncs.com",
		"http://127.0.0.1:9000":                      "127.0.0.1:9000",
		"https://127.0.0.1:80":                       "127.0.0.1:80",
	} {
		if got := CanonicalEndpoint(endpoint); got != want {
			t.Errorf("%q is %q, want %q", endpoint, got, want)
		}
	}
}
