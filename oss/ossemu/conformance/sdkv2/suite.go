// Package sdkv2 pins what the integration tests of OSS Go SDK v2 are built
// from: the SDK and the modules that its tests import. The conformance tests
// build the SDK's test binary inside this module.
package sdkv2

import (
	_ "github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	_ "github.com/stretchr/testify/assert"
)
