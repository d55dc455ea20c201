package ossemu

import (
	"fmt"
	"net/http"
)

// failure is a refusal in the words of the service.
type failure struct {
	status  int
	code    string
	message string
	// ec is the service's own error number.
	ec string
	// elements are further elements of the error document: name, value, …
	elements []string
	// headers are further headers of the answer: name, value, …
	headers []string
}

// Error makes a failure an error, so that it can travel through readers.
func (f *failure) Error() string { return f.code + ": " + f.message }

// with returns a copy of f that carries one more element.
func (f *failure) with(element, value string) *failure {
	c := *f
	c.elements = append(append([]string(nil), f.elements...), element, value)
	return &c
}

// invalidArgument refuses the value of one argument.
func invalidArgument(name, value, format string, args ...any) *failure {
	return &failure{http.StatusBadRequest, "InvalidArgument", fmt.Sprintf(format, args...), "0017-00000901", []string{"ArgumentName", name, "ArgumentValue", value}, nil}
}

// The refusals. Statuses and codes are the service's; the wording of some
// messages and some numbers are assumed, see DESIGN.md.
var (
	errAccessDenied          = &failure{http.StatusForbidden, "AccessDenied", "You have no right to access this object because of bucket acl.", "0003-00000001", nil, nil}
	errSecondLevelDomain     = &failure{http.StatusForbidden, "SecondLevelDomainForbidden", "Please use virtual hosted style to access.", "0048-00000004", nil, nil}
	errMethodNotAllowed      = &failure{http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.", "0016-00000001", nil, nil}
	errNotImplemented        = &failure{http.StatusNotImplemented, "NotImplemented", "A header or parameter you provided implies functionality that is not implemented.", "0016-00000002", nil, nil}
	errInternal              = &failure{http.StatusInternalServerError, "InternalError", "Please contact the server administrator, oss@service.aliyun.com.", "0007-00000001", nil, nil}
	errRequestTimeout        = &failure{http.StatusBadRequest, "RequestTimeout", "Your socket connection to the server was not read from or written to within the timeout period.", "0016-00000501", nil, nil}
	errIncompleteBody        = &failure{http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header.", "0016-00000502", nil, nil}
	errInvalidBucketName     = &failure{http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid.", "0015-00000001", nil, nil}
	errNoSuchBucket          = &failure{http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.", "0015-00000101", nil, nil}
	errBucketNotEmpty        = &failure{http.StatusConflict, "BucketNotEmpty", "The bucket has objects. Please delete them first.", "0015-00000301", nil, nil}
	errInvalidObjectName     = &failure{http.StatusBadRequest, "InvalidObjectName", "The specified object is not valid.", "0016-00000101", nil, nil}
	errNoSuchKey             = &failure{http.StatusNotFound, "NoSuchKey", "The specified key does not exist.", "0026-00000001", nil, nil}
	errFileAlreadyExists     = &failure{http.StatusConflict, "FileAlreadyExists", "The object you specified already exists and can not be overwritten.", "0026-00000002", nil, nil}
	errObjectNotAppendable   = &failure{http.StatusConflict, "ObjectNotAppendable", "The object is not appendable.", "0026-00000015", nil, nil}
	errPositionNotEqual      = &failure{http.StatusConflict, "PositionNotEqualToLength", "Position is not equal to file length.", "0026-00000016", nil, nil}
	errSymlinkTargetNotExist = &failure{http.StatusNotFound, "SymlinkTargetNotExist", "The symlink target object does not exist.", "0026-00000012", nil, nil}
	errInvalidTargetType     = &failure{http.StatusBadRequest, "InvalidTargetType", "The symlink's target object type is invalid.", "0026-00000011", nil, nil}
	errNotSymlink            = &failure{http.StatusBadRequest, "NotSymlink", "The object is not a symlink.", "0043-00000101", nil, nil}
	errMissingSymlinkTarget  = &failure{http.StatusBadRequest, "MissingArgument", "Missing Some Required Arguments.", "0043-00000001", nil, nil}
	errMissingArgument       = &failure{http.StatusBadRequest, "MissingArgument", "Missing Some Required Arguments.", "0016-00000504", nil, nil}
	errInvalidDigest         = &failure{http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified was invalid.", "0017-00000503", nil, nil}
	errEntityTooLarge        = &failure{http.StatusBadRequest, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size.", "0017-00000401", nil, nil}
	errCopyTooLarge          = &failure{http.StatusBadRequest, "EntityTooLarge", "The source object is larger than one copy request may copy. Use UploadPartCopy.", "0044-00000401", nil, nil}
	errMetadataTooLarge      = &failure{http.StatusBadRequest, "MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size.", "0017-00000402", nil, nil}
	errMalformedXML          = &failure{http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema.", "0016-00000608", nil, nil}
	errMalformedComplete     = &failure{http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema.", "0042-00000205", nil, nil}
	errPreconditionFailed    = &failure{http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.", "0026-00000051", nil, nil}
	errNotModified           = &failure{http.StatusNotModified, "NotModified", "Not Modified", "", nil, nil}
	errInvalidRange          = &failure{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range cannot be satisfied.", "0026-00000021", nil, nil}
	errNoSuchUpload          = &failure{http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.", "0042-00000002", nil, nil}
	errInvalidPart           = &failure{http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found or the specified entity tag might not have matched the part's entity tag.", "0042-00000208", nil, nil}
	errInvalidPartOrder      = &failure{http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order. The parts list must be specified in order by part number.", "0042-00000209", nil, nil}
	errEntityTooSmall        = &failure{http.StatusBadRequest, "EntityTooSmall", "Your proposed upload smaller than the minimum allowed size.", "0042-00000213", nil, nil}
	errCompleteAllAndBody    = &failure{http.StatusBadRequest, "InvalidArgument", "Should not speficy both complete all header and http body.", "0042-00000216", nil, nil}
	errRestoreNotSupported   = &failure{http.StatusBadRequest, "OperationNotSupported", "The operation is not supported for this resource.", "0016-00000704", nil, nil}
	errEncryption            = &failure{http.StatusBadRequest, "InvalidEncryptionAlgorithmError", "The Encryption request you specified is not valid. Supported value: AES256/KMS/SM4.", "0017-00000601", nil, nil}
	errQpsLimitExceeded      = &failure{http.StatusTooManyRequests, "QpsLimitExceeded", "Please reduce your request rate.", "0004-00000101", nil, nil}
)

// injectable are the refusals that only a fault or a limit brings about.
var injectable = []*failure{
	errQpsLimitExceeded,
	{http.StatusServiceUnavailable, "TotalQpsLimitExceeded", "Max total qps limit is exceeded", "0004-00000102", nil, nil},
	{http.StatusServiceUnavailable, "DownloadTrafficRateLimitExceeded", "Please reduce your download request traffic", "0004-00000103", nil, nil},
	{http.StatusServiceUnavailable, "UploadTrafficRateLimitExceeded", "Please reduce your upload request traffic", "0004-00000104", nil, nil},
	{http.StatusServiceUnavailable, "MetaOperationQpsLimitExceeded", "Qps limit for the meta operation is exceeded", "0004-00000105", nil, nil},
	{http.StatusServiceUnavailable, "ActiveRequestLimitExceeded", "Max active request limit is exceeded", "0004-00000106", nil, nil},
	{http.StatusServiceUnavailable, "ServiceUnavailable", "Thread pool is almost full, please retry later", "0004-00000107", nil, nil},
	{http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.", "0002-00000504", nil, nil},
	{http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your key and signing method.", "0002-00000040", nil, nil},
	{http.StatusForbidden, "InvalidAccessKeyId", "The OSS Access Key Id you provided does not exist in our records.", "0002-00000040", nil, nil},
	{http.StatusForbidden, "SecurityTokenExpired", "The security token you provided has expired.", "0002-00000042", nil, nil},
	errInternal, errRequestTimeout, errAccessDenied, errNoSuchKey, errNoSuchBucket, errNoSuchUpload,
	errPreconditionFailed, errFileAlreadyExists, errInvalidRange, errInvalidDigest, errNotImplemented,
	errPositionNotEqual, errMalformedXML, errMethodNotAllowed, errInvalidPart, errEntityTooSmall,
}

// errorByCode finds the refusal that a fault names by its code.
func errorByCode(code string) (*failure, bool) {
	for _, f := range injectable {
		if f.code == code {
			return f, true
		}
	}
	return nil, false
}
