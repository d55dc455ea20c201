package sign

import (
	"strings"
	"time"
)

// scope is what a V4 signature is confined to.
type scope struct {
	accessKeyID string
	// day is in the form yyyymmdd.
	day, region, product string
	// text is day, region, product and terminator as they were written.
	text string
}

// parseScope takes "key/day/region/product/terminator" apart. Keys may hold
// slashes, so the parts are counted from the end.
func parseScope(credential, terminator string) (scope, bool) {
	rest, ok := strings.CutSuffix(credential, "/"+terminator)
	if !ok {
		return scope{}, false
	}
	var sc scope
	for _, part := range []*string{&sc.product, &sc.region, &sc.day} {
		i := strings.LastIndexByte(rest, '/')
		if i < 0 {
			return scope{}, false
		}
		rest, *part = rest[:i], rest[i+1:]
		if *part == "" {
			return scope{}, false
		}
	}
	if _, err := time.Parse(dayFormat, sc.day); err != nil || rest == "" {
		return scope{}, false
	}
	sc.accessKeyID = rest
	sc.text = credential[len(rest)+1:]
	return sc, true
}

// authorization is the parameters of a V4 header of either family.
type authorization struct {
	credential, signature string
	// headers are the names in AdditionalHeaders or SignedHeaders.
	headers    string
	hasHeaders bool
}

// parseAuthorization takes "Credential=…,<headersName>=…,Signature=…" apart.
// Space around the commas is allowed, other parameters and repetition are not.
func parseAuthorization(text, headersName string) (authorization, bool) {
	var (
		a    authorization
		seen int
	)
	const credential, signature, headers = 1, 2, 4
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		bit := 0
		switch name {
		case "Credential":
			a.credential, bit = value, credential
		case "Signature":
			a.signature, bit = value, signature
		case headersName:
			a.headers, a.hasHeaders, bit = value, true, headers
		}
		if !ok || bit == 0 || seen&bit != 0 {
			return authorization{}, false
		}
		seen |= bit
	}
	return a, seen&credential != 0 && seen&signature != 0
}
