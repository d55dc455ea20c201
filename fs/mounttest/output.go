package mounttest

import (
	"bytes"
	"io"
	"sync"
)

// Output is what processes have printed. It may be read while they print; the zero
// value is ready to use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

var _ io.Writer = (*Output)(nil)

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns what has been printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
