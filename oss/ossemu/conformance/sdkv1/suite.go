// Package sdkv1 pins what the integration tests of OSS Go SDK v1 are built
// from: the SDK and the modules that its tests import. The conformance tests
// build the SDK's test binary inside this module.
package sdkv1

import (
	_ "github.com/aliyun/aliyun-oss-go-sdk/oss"
	_ "gopkg.in/check.v1"
)
