package sign

import (
	"net/http"
	"time"
)

// Error is a refusal in the service's words. It is also what a body's Read
// returns when the content is not what was signed; find it with errors.As.
type Error struct {
	// Status is the HTTP status.
	Status  int
	Code    string
	Message string
	// EC is the service's own error number, empty where it is not known.
	EC string
	// Details are further elements of the error document, by element name. Values
	// may hold any byte that a request may hold.
	Details map[string]string
}

// Error returns code and message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// timeFormat is how the service writes times into error documents.
const timeFormat = "2006-01-02T15:04:05.000Z"

func pick(s3 bool, yes, no string) string {
	if s3 {
		return yes
	}
	return no
}

func invalidArgument(name, message string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: "InvalidArgument", Message: message,
		Details: map[string]string{"ArgumentName": name},
	}
}

// malformedHeader refuses an Authorization header that is not of its scheme's
// form.
func malformedHeader(s3 bool, message, ec string) *Error {
	if s3 {
		return &Error{Status: http.StatusBadRequest, Code: "AuthorizationHeaderMalformed", Message: message, EC: ec}
	}
	e := invalidArgument("Authorization", message)
	e.EC = ec
	return e
}

// malformedQuery refuses a presigned URL that is not of its scheme's form.
func malformedQuery(s3 bool, message, ec string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: pick(s3, "AuthorizationQueryParametersError", "InvalidArgument"),
		Message: message, EC: ec,
	}
}

func invalidAccessKeyID(id string, s3 bool) *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "InvalidAccessKeyId", EC: "0002-00000902",
		Message: "The OSS Access Key Id you provided does not exist in our records.",
		Details: map[string]string{pick(s3, "AWSAccessKeyId", "OSSAccessKeyId"): id},
	}
}

func invalidSecurityToken() *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "InvalidSecurityToken", EC: "0002-00000008",
		Message: "The security token you provided is invalid.",
	}
}

func securityTokenExpired() *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "SecurityTokenExpired", EC: "0002-00000007",
		Message: "The security token you provided has expired.",
	}
}

func unparsableDate(text string) *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "AccessDenied", EC: "0002-00000505",
		Message: "The date of the request cannot be read.",
		Details: map[string]string{"RequestTime": text},
	}
}

func skewed(request, server time.Time, s3 bool) *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "RequestTimeTooSkewed", EC: pick(s3, "0002-00000501", "0002-00000504"),
		Message: "The difference between the request time and the current time is too large.",
		Details: map[string]string{
			"RequestTime": request.UTC().Format(timeFormat),
			"ServerTime":  server.UTC().Format(timeFormat),
		},
	}
}

func urlExpired(end, server time.Time, ec string) *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "AccessDenied", EC: ec,
		Message: "Request has expired.",
		Details: map[string]string{
			"Expires":    end.UTC().Format(timeFormat),
			"ServerTime": server.UTC().Format(timeFormat),
		},
	}
}

// mismatch refuses a wrong signature and shows what the server would have
// signed: comparing the two texts is how a client's author finds the fault.
func mismatch(s3 bool, accessKeyID, provided string, toSign, canonical []byte) *Error {
	e := &Error{
		Status: http.StatusForbidden, Code: "SignatureDoesNotMatch", EC: pick(s3, "0002-00000429", "0002-00000040"),
		Message: "The request signature we calculated does not match the signature you provided. " +
			"Check your key and signing method.",
		Details: map[string]string{
			pick(s3, "AWSAccessKeyId", "OSSAccessKeyId"): accessKeyID,
			"SignatureProvided":                          provided,
			"StringToSign":                               string(toSign),
		},
	}
	if canonical != nil {
		e.Details["CanonicalRequest"] = string(canonical)
	}
	return e
}
