package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Location is the place in the object store that is mounted.
type Location struct {
	Bucket string
	// Prefix is empty or ends with a slash.
	Prefix string
}

// maxKey is the longest key that OSS takes, in bytes.
const maxKey = 1023

// UnmarshalText reads oss://bucket or oss://bucket/prefix.
func (l *Location) UnmarshalText(text []byte) error {
	in := string(text)
	rest, ok := strings.CutPrefix(in, "oss://")
	if !ok {
		return fmt.Errorf("%q is not a bucket: write oss://bucket or oss://bucket/prefix", in)
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	if err := checkBucket(bucket); err != nil {
		return err
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix != "" {
		if err := checkPrefix(prefix); err != nil {
			return err
		}
		prefix += "/"
	}
	l.Bucket, l.Prefix = bucket, prefix
	return nil
}

// checkBucket applies the naming rules of OSS buckets.
func checkBucket(bucket string) error {
	const rule = "a bucket's name has 3 to 63 lower-case letters, digits and dashes, none at its ends"
	if len(bucket) < 3 || len(bucket) > 63 ||
		strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
		strings.HasPrefix(bucket, "-") || strings.HasSuffix(bucket, "-") {
		return fmt.Errorf("bucket %q cannot exist: %s", bucket, rule)
	}
	return nil
}

// checkPrefix refuses prefixes under which no key could be a path.
func checkPrefix(prefix string) error {
	if !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("prefix %q holds bytes that are not text: mount a prefix above it", prefix)
	}
	if len(prefix) > maxKey-2 {
		return fmt.Errorf("prefix of %d bytes leaves no room for a name: OSS keys have at most %d bytes", len(prefix), maxKey)
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("prefix %q has the part %q, which cannot be a directory: mount a prefix above it", prefix, part)
		}
	}
	return nil
}

// MarshalText writes the location as a user does.
func (l Location) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns oss://bucket or oss://bucket/prefix, without a slash at its end.
func (l Location) String() string {
	if l.Prefix == "" {
		return "oss://" + l.Bucket
	}
	return "oss://" + l.Bucket + "/" + strings.TrimSuffix(l.Prefix, "/")
}
