package ossemu

import (
	"net/http"
	"strings"
)

// bucketSettings are bucket configurations that this server answers as a bucket
// does on which nobody has set them: with an empty document, or with the code of
// what is missing.
var bucketSettings = map[string]struct {
	document string
	absent   *failure
}{
	"cors":                 {absent: absent("NoSuchCORSConfiguration", "The CORS configuration does not exist.")},
	"lifecycle":            {absent: absent("NoSuchLifecycle", "No Row found in Lifecycle Table.")},
	"website":              {absent: absent("NoSuchWebsiteConfiguration", "The specified bucket does not have a website configuration.")},
	"policy":               {absent: absent("NoSuchBucketPolicy", "The bucket policy does not exist.")},
	"encryption":           {absent: absent("NoSuchServerSideEncryptionRule", "The server side encryption configuration was not found.")},
	"inventory":            {absent: absent("NoSuchInventory", "The specified inventory does not exist.")},
	"replication":          {absent: absent("NoSuchReplicationConfiguration", "The bucket has no replication configuration.")},
	"worm":                 {absent: absent("NoSuchWORMConfiguration", "The WORM configuration does not exist.")},
	"object-lock":          {absent: absent("ObjectLockConfigurationNotFoundError", "Object Lock configuration does not exist for this bucket.")},
	"live":                 {document: "ListLiveChannelResult"},
	"logging":              {document: "BucketLoggingStatus"},
	"tagging":              {document: "Tagging"},
	"requestPayment":       {document: "RequestPaymentConfiguration"},
	"referer":              {document: "RefererConfiguration"},
	"transferAcceleration": {document: "TransferAccelerationConfiguration"},
}

func absent(code, message string) *failure {
	return &failure{http.StatusNotFound, code, message, "0015-00000201", nil, nil}
}

// unsupported are parameters that ask for what this server does not have. To
// ignore them would answer another question than the one asked.
var unsupported = []string{"x-oss-process", "x-oss-async-process", "callback", "vod", "metaQuery", "asyncFetch", "accelerate", "ownershipControls", "publicAccessBlock"}

// classify says which operation a request asks for.
func classify(method, bucket, key string, q query, copySource bool) (operation, *failure) {
	for _, p := range unsupported {
		if len(q) > 0 && q.has(p) {
			return opUnknown, errNotImplemented.with("Parameter", p)
		}
	}
	if key == "" {
		for _, p := range q {
			if p.value == "" && !plainParameter(p.name) {
				return opUnknown, errNotImplemented.with("Parameter", p.name)
			}
		}
	}
	var op operation
	switch {
	case bucket == "":
		if method == http.MethodGet {
			op = opListBuckets
		}
	case key == "":
		op = classifyBucket(method, q)
	default:
		op = classifyObject(method, q, copySource)
	}
	if op == opUnknown {
		return op, errMethodNotAllowed.with("Method", method)
	}
	return op, nil
}

// plainParameters may come without a value to a bucket or to the service. Any
// other that does names a part of the service that is not here: without this
// list, deleting a setting would delete the bucket.
var plainParameters = map[string]bool{
	"acl": true, "bucketInfo": true, "location": true, "stat": true, "versioning": true, "versions": true, "uploads": true,
	"delete": true, "prefix": true, "marker": true, "delimiter": true, "max-keys": true, "list-type": true,
	"encoding-type": true, "start-after": true, "continuation-token": true, "fetch-owner": true, "key-marker": true,
	"upload-id-marker": true, "version-id-marker": true, "max-uploads": true, "security-token": true,
}

func plainParameter(name string) bool {
	if _, ok := bucketSettings[name]; ok || plainParameters[name] {
		return true
	}
	return strings.HasPrefix(name, "x-oss-") || strings.HasPrefix(name, "X-Amz-") || strings.HasPrefix(name, "x-amz-")
}

func classifyBucket(method string, q query) operation {
	switch method {
	case http.MethodHead:
		return opHeadBucket
	case http.MethodDelete:
		if hasSetting(q) {
			return opPutBucketSetting
		}
		return opDeleteBucket
	case http.MethodPost:
		if q.has("delete") {
			return opDeleteMultipleObjects
		}
	case http.MethodPut:
		switch {
		case q.has("acl"):
			return opPutBucketACL
		case hasSetting(q), q.has("versioning"):
			return opPutBucketSetting
		}
		return opPutBucket
	case http.MethodGet:
		return classifyBucketGet(q)
	}
	return opUnknown
}

func hasSetting(q query) bool {
	for _, p := range q {
		if _, ok := bucketSettings[p.name]; ok {
			return true
		}
	}
	return false
}

func classifyBucketGet(q query) operation {
	switch {
	case q.has("bucketInfo"):
		return opGetBucketInfo
	case q.has("location"):
		return opGetBucketLocation
	case q.has("stat"):
		return opGetBucketStat
	case q.has("acl"):
		return opGetBucketACL
	case q.has("versioning"):
		return opGetBucketVersioning
	case q.has("uploads"):
		return opListMultipartUploads
	case q.has("versions"):
		return opListObjectVersions
	case hasSetting(q):
		return opGetBucketSetting
	case q.get("list-type") == "2":
		return opListObjectsV2
	}
	return opListObjects
}

func classifyObject(method string, q query, copySource bool) operation {
	switch method {
	case http.MethodGet:
		switch {
		case len(q) == 0:
			return opGetObject
		case q.has("uploadId"):
			return opListParts
		case q.has("acl"):
			return opGetObjectACL
		case q.has("tagging"):
			return opGetObjectTagging
		case q.has("symlink"):
			return opGetSymlink
		case q.has("objectMeta"):
			return opGetObjectMeta
		}
		return opGetObject
	case http.MethodHead:
		if q.has("objectMeta") {
			return opGetObjectMeta
		}
		return opHeadObject
	case http.MethodPut:
		return classifyObjectPut(q, copySource)
	case http.MethodPost:
		switch {
		case q.has("append"):
			return opAppendObject
		case q.has("uploads"):
			return opInitiateMultipartUpload
		case q.has("uploadId"):
			return opCompleteMultipartUpload
		case q.has("restore"):
			return opRestoreObject
		}
	case http.MethodDelete:
		switch {
		case q.has("uploadId"):
			return opAbortMultipartUpload
		case q.has("tagging"):
			return opDeleteObjectTagging
		}
		return opDeleteObject
	}
	return opUnknown
}

func classifyObjectPut(q query, copySource bool) operation {
	switch {
	case q.has("partNumber") && q.has("uploadId"):
		if copySource {
			return opUploadPartCopy
		}
		return opUploadPart
	case q.has("acl"):
		return opPutObjectACL
	case q.has("tagging"):
		return opPutObjectTagging
	case q.has("symlink"):
		return opPutSymlink
	case copySource:
		return opCopyObject
	}
	return opPutObject
}
