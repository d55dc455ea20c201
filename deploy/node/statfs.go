package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// answer is what the child says of one call.
type answer struct {
	// Type is the file system's magic number, Errno the error's number or 0.
	Type  int64 `json:"type"`
	Errno int   `json:"errno"`
}

// ServeStatfs calls statfs on path for every byte that it reads from in, and writes a line
// for each. The kernel answers statfs of a FUSE mount from the daemon, never from a
// cache. It returns when in ends.
func ServeStatfs(path string, in io.Reader, out io.Writer) error {
	questions, lines := bufio.NewReader(in), json.NewEncoder(out)
	for {
		if _, err := questions.ReadByte(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var st unix.Statfs_t
		err := unix.EINTR
		for errors.Is(err, unix.EINTR) {
			if e := unix.Statfs(path, &st); e == nil {
				err = 0
			} else if !errors.As(e, &err) {
				return e
			}
		}
		if err := lines.Encode(answer{Type: st.Type, Errno: int(err)}); err != nil {
			return err
		}
	}
}
