package oss

import (
	"errors"
	"fmt"
)

// As returns the bucket as class sees it: every request of it goes through the
// limiter in that class, and gives up after that class's deadline.
func (c *Client) As(class Class) Bucket { return &view{client: c, class: class} }

// view is a client with a class.
type view struct {
	client *Client
	class  Class
}

var _ Bucket = (*view)(nil)

// maxKey is the longest key in bytes, by OSS's naming rules.
const maxKey = 1023

// checkKey refuses keys that OSS refuses. An empty one would be worse than
// refused: the request would be about the bucket.
func checkKey(op operation, key string) error {
	switch {
	case key == "":
		return invalid(op, key, "the key is empty")
	case len(key) > maxKey:
		return invalid(op, key, fmt.Sprintf("the key has %d bytes, more than %d", len(key), maxKey))
	case key[0] == '/' || key[0] == '\\':
		return invalid(op, key, "a key must not begin with a slash or backslash")
	}
	return nil
}

// invalid is the failure of a request that would be refused, and is not sent.
func invalid(op operation, key, why string) *failure {
	return &failure{op: op, key: key, kind: ErrInvalid, outcome: outcomeInvalid, cause: errors.New(why)}
}
