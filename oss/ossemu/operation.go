package ossemu

// operation is what a request asks for.
type operation uint8

const (
	opUnknown operation = iota
	opListBuckets
	opPutBucket
	opDeleteBucket
	opHeadBucket
	opGetBucketInfo
	opGetBucketLocation
	opGetBucketStat
	opGetBucketACL
	opPutBucketACL
	opGetBucketVersioning
	opGetBucketSetting
	opPutBucketSetting
	opListObjects
	opListObjectsV2
	opListObjectVersions
	opListMultipartUploads
	opDeleteMultipleObjects
	opPutObject
	opGetObject
	opHeadObject
	opGetObjectMeta
	opDeleteObject
	opCopyObject
	opAppendObject
	opPutSymlink
	opGetSymlink
	opPutObjectTagging
	opGetObjectTagging
	opDeleteObjectTagging
	opPutObjectACL
	opGetObjectACL
	opRestoreObject
	opInitiateMultipartUpload
	opUploadPart
	opUploadPartCopy
	opCompleteMultipartUpload
	opAbortMultipartUpload
	opListParts
	operations // how many there are
)

// effort says which latency an operation has.
type effort uint8

const (
	effortHead effort = iota
	effortGet
	effortPut
	effortList
	effortCopy
	effortComplete
)

// operationTable holds what there is to know of each operation by its number.
var operationTable = [operations]struct {
	name   string
	effort effort
	// write says that the operation changes something, which an anonymous request
	// may do only in a public-read-write bucket.
	write bool
}{
	opUnknown:                 {"Unknown", effortHead, false},
	opListBuckets:             {"ListBuckets", effortList, false},
	opPutBucket:               {"PutBucket", effortPut, true},
	opDeleteBucket:            {"DeleteBucket", effortPut, true},
	opHeadBucket:              {"HeadBucket", effortHead, false},
	opGetBucketInfo:           {"GetBucketInfo", effortHead, false},
	opGetBucketLocation:       {"GetBucketLocation", effortHead, false},
	opGetBucketStat:           {"GetBucketStat", effortHead, false},
	opGetBucketACL:            {"GetBucketAcl", effortHead, false},
	opPutBucketACL:            {"PutBucketAcl", effortPut, true},
	opGetBucketVersioning:     {"GetBucketVersioning", effortHead, false},
	opGetBucketSetting:        {"GetBucketSetting", effortHead, false},
	opPutBucketSetting:        {"PutBucketSetting", effortPut, true},
	opListObjects:             {"ListObjects", effortList, false},
	opListObjectsV2:           {"ListObjectsV2", effortList, false},
	opListObjectVersions:      {"ListObjectVersions", effortList, false},
	opListMultipartUploads:    {"ListMultipartUploads", effortList, false},
	opDeleteMultipleObjects:   {"DeleteMultipleObjects", effortPut, true},
	opPutObject:               {"PutObject", effortPut, true},
	opGetObject:               {"GetObject", effortGet, false},
	opHeadObject:              {"HeadObject", effortHead, false},
	opGetObjectMeta:           {"GetObjectMeta", effortHead, false},
	opDeleteObject:            {"DeleteObject", effortPut, true},
	opCopyObject:              {"CopyObject", effortCopy, true},
	opAppendObject:            {"AppendObject", effortPut, true},
	opPutSymlink:              {"PutSymlink", effortPut, true},
	opGetSymlink:              {"GetSymlink", effortHead, false},
	opPutObjectTagging:        {"PutObjectTagging", effortPut, true},
	opGetObjectTagging:        {"GetObjectTagging", effortHead, false},
	opDeleteObjectTagging:     {"DeleteObjectTagging", effortPut, true},
	opPutObjectACL:            {"PutObjectAcl", effortPut, true},
	opGetObjectACL:            {"GetObjectAcl", effortHead, false},
	opRestoreObject:           {"RestoreObject", effortPut, true},
	opInitiateMultipartUpload: {"InitiateMultipartUpload", effortPut, true},
	opUploadPart:              {"UploadPart", effortPut, true},
	opUploadPartCopy:          {"UploadPartCopy", effortCopy, true},
	opCompleteMultipartUpload: {"CompleteMultipartUpload", effortComplete, true},
	opAbortMultipartUpload:    {"AbortMultipartUpload", effortPut, true},
	opListParts:               {"ListParts", effortList, false},
}

// String returns the name that the vendor's documentation gives the operation.
func (o operation) String() string { return operationTable[o].name }

// operationByName is the inverse of String.
func operationByName(name string) (operation, bool) {
	for o := range operationTable {
		if operationTable[o].name == name {
			return operation(o), true
		}
	}
	return opUnknown, false
}
