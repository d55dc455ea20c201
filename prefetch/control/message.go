package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// request is the document that starts a call.
type request struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// answer is the document that ends a call: a result or an error.
type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Hello is the result of the method hello, which anyone may call and which has
// no parameters.
type Hello struct {
	// Server is "pailfs".
	Server string `json:"server"`
	// Protocol is the version of the protocol.
	Protocol int `json:"protocol"`
	// Version is the version of the daemon.
	Version string `json:"version"`
	// Methods are the methods that the caller may call, sorted.
	Methods []string `json:"methods"`
}

// serverName is what Hello.Server holds.
const serverName = "pailfs"

// decodeStrict stores the JSON document data in v. It refuses fields that v does
// not have, anything after the document, and text that is not UTF-8, which
// encoding/json would silently replace.
func decodeStrict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("not a whole JSON document")
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON document")
	}
	return nil
}

// encodeJSON is json.Marshal without its escapes for HTML, which nobody here
// needs and which make paths longer.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// errorDocument returns the answer document that carries e.
func errorDocument(e *Error) []byte {
	doc, err := encodeJSON(answer{Error: e})
	if err != nil {
		// An Error holds two strings, which always encode.
		panic(fmt.Sprintf("encode error answer: %v", err))
	}
	return doc
}
