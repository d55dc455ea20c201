module github.com/pailfs/pailfs/oss/ossemu/conformance/sdkv1

go 1.26.0

require (
	github.com/aliyun/aliyun-oss-go-sdk v3.0.2+incompatible
	gopkg.in/check.v1 v1.0.0-20201130134442-10cb98267c6c
)

require (
	github.com/kr/pretty v0.2.1 // indirect
	github.com/kr/text v0.1.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
