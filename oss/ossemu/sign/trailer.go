package sign

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"net/http"
	"strings"
)

// The polynomial of CRC-64/NVME, bit-reversed as hash/crc64 wants it.
const crc64NVME = 0x9a6c9329ac4bc9b5

// checksums are the algorithms that a trailer may carry, by the end of their
// header's name.
var checksums = map[string]func() hash.Hash{
	"crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"crc32c":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"crc64nvme": func() hash.Hash { return crc64.New(crc64.MakeTable(crc64NVME)) },
	"sha1":      sha1.New,
	"sha256":    sha256.New,
}

// trailer checks the lines that follow the last chunk.
type trailer struct {
	// announced are the names that x-amz-trailer promised.
	announced []string
	hashes    map[string]hash.Hash
	values    map[string]string
	// signed is what the trailer's signature covers.
	signed    strings.Builder
	signature string
}

// newTrailer prepares for the trailer that the values of x-amz-trailer announce.
func newTrailer(announced []string) *trailer {
	t := &trailer{hashes: make(map[string]hash.Hash), values: make(map[string]string)}
	for _, value := range announced {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if name == "" {
				continue
			}
			t.announced = append(t.announced, name)
			if algorithm, ok := strings.CutPrefix(name, "x-amz-checksum-"); ok && checksums[algorithm] != nil {
				t.hashes[name] = checksums[algorithm]()
			}
		}
	}
	return t
}

// write adds content to the checksums.
func (t *trailer) write(p []byte) {
	for _, h := range t.hashes {
		h.Write(p)
	}
}

// add takes one line of the trailer.
func (t *trailer) add(line string) *Error {
	name, value, ok := strings.Cut(line, ":")
	name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
	switch {
	case !ok || name == "":
		return malformedTrailer("A line of the trailer is malformed.")
	case t.signature != "":
		return malformedTrailer("The trailer goes on behind its signature.")
	case name == "x-amz-trailer-signature":
		t.signature = value
		return nil
	}
	if _, ok := t.values[name]; ok {
		return malformedTrailer("The trailer repeats " + name + ".")
	}
	t.values[name] = value
	t.signed.WriteString(name + ":" + value + "\n")
	return nil
}

// check judges the whole trailer. Chain is nil unless the body is signed.
func (t *trailer) check(chain *chunkChain) *Error {
	if chain != nil {
		chain.hash.Write([]byte(t.signed.String()))
		if e := chain.checkTrailer(t.signature); e != nil {
			return e
		}
	}
	for _, name := range t.announced {
		value, ok := t.values[name]
		if !ok {
			return malformedTrailer("The trailer lacks " + name + ".")
		}
		h, known := t.hashes[name]
		if known && value != base64.StdEncoding.EncodeToString(h.Sum(nil)) {
			return &Error{
				Status: http.StatusBadRequest, Code: "BadDigest",
				Message: "The " + name + " you specified did not match the calculated checksum.",
			}
		}
	}
	return nil
}

func malformedTrailer(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "MalformedTrailerError", Message: message}
}
