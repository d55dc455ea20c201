package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// ReplaceFile makes the file at path have that content, readable by its owner alone. A loss of
// power, and a crash, at any moment leave what was there or what is new; when ReplaceFile has
// returned nil they leave what is new.
//
// The content is written to next before, which must be a path of the same directory. A file that
// is there is lost; so is, with it, what an interrupted call has left. After an error next may be
// there.
func ReplaceFile(path, next string, content []byte) error {
	if err := writeFile(next, content); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return SyncDirectory(filepath.Dir(path))
}

// writeFile makes a file with that content, which survives a loss of power once its directory
// was synced.
func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// SyncDirectory brings the names of a directory to the disk: what was made, renamed or removed in
// it before.
func SyncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
