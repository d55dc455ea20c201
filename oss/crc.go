package oss

import (
	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"
)

// CombineCRC64 returns the CRC-64/XZ of two contents one after the other, of which
// the second has size bytes.
func CombineCRC64(first, second uint64, size int64) uint64 {
	return sdk.CRC64Combine(first, second, uint64(size))
}
