package sign

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxSkew is how far the clocks of client and server may be apart.
	maxSkew = 15 * time.Minute
	// maxExpires is the longest life of a V4 presigned URL.
	maxExpires = 7 * 24 * time.Hour

	stampFormat = "20060102T150405Z"
	dayFormat   = "20060102"
)

// stamp is the time at which a request was signed.
type stamp struct {
	// text is what the client wrote and signed.
	text string
	time time.Time
}

// parseStamp reads a time in the form of x-oss-date and x-amz-date, or of Date.
func parseStamp(text string) (stamp, bool) {
	layout := http.TimeFormat
	switch {
	case strings.HasSuffix(text, "Z"):
		layout = stampFormat
	case strings.HasSuffix(text, "00"):
		layout = time.RFC1123Z
	}
	t, err := time.Parse(layout, text)
	return stamp{text, t.UTC()}, err == nil
}

// headerStamp finds the time of a request that is signed in its header: own is
// the scheme's own header, which goes before Date.
func (v *Verifier) headerStamp(h http.Header, own string, s3 bool) (stamp, *Error) {
	text := h.Get(own)
	if text == "" {
		text = h.Get("Date")
	}
	if text == "" {
		return stamp{}, &Error{
			Status: http.StatusForbidden, Code: "AccessDenied", EC: "0002-00000503",
			Message: "OSS authentication requires a valid Date.",
		}
	}
	st, ok := parseStamp(text)
	if !ok {
		return stamp{}, unparsableDate(text)
	}
	now := v.now()
	if d := now.Sub(st.time); d > maxSkew || d < -maxSkew {
		return stamp{}, skewed(st.time, now, s3)
	}
	return st, nil
}

// lifetime finds when a V4 presigned URL was signed and judges whether now lies
// in its life. Names are those of the parameters.
func (v *Verifier) lifetime(q query, dateName, expiresName string, s3 bool) (stamp, *Error) {
	st, ok := parseStamp(q.get(dateName))
	if !ok || !strings.HasSuffix(st.text, "Z") {
		if !q.has(dateName) {
			return stamp{}, malformedQuery(s3, dateName+" is missing.", pick(s3, "0002-00000414", ""))
		}
		return stamp{}, unparsableDate(st.text)
	}
	if !q.has(expiresName) {
		return stamp{}, malformedQuery(s3, expiresName+" is missing.", pick(s3, "0002-00000416", "0002-00000215"))
	}
	// S3 allows a URL that lives no time at all, OSS does not; both end at a week.
	seconds, err := strconv.ParseInt(q.get(expiresName), 10, 64)
	if err != nil || seconds < 0 || seconds == 0 && !s3 || seconds > int64(maxExpires/time.Second) {
		return stamp{}, malformedQuery(s3, expiresName+" must be a number of seconds, 604800 at most.", pick(s3, "", "0002-00000232"))
	}
	now := v.now()
	if now.Sub(st.time) < -maxSkew {
		return stamp{}, skewed(st.time, now, s3)
	}
	if end := st.time.Add(time.Duration(seconds) * time.Second); now.After(end) {
		return stamp{}, urlExpired(end, now, pick(s3, "0002-00000418", "0002-00000236"))
	}
	return st, nil
}

// untilExpires judges the absolute end of a URL of the schemes before V4.
func (v *Verifier) untilExpires(text string) *Error {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return &Error{
			Status: http.StatusForbidden, Code: "AccessDenied", EC: "0002-00000070",
			Message: "Invalid date (should be seconds since epoch).",
		}
	}
	now := v.now()
	if now.Unix() > seconds {
		return urlExpired(time.Unix(seconds, 0), now, "0002-00000069")
	}
	return nil
}
