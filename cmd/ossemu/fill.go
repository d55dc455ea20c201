package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// fillCmd holds the flags of fill.
type fillCmd struct {
	Dir    string `required:"" placeholder:"DIR" help:"Directory of the data; made if missing. No server may be running on it."`
	Bucket string `required:"" placeholder:"NAME" help:"The bucket, made if missing."`
}

// Help is what --help says beside the flags.
func (fillCmd) Help() string {
	return `Stores an object under each key of standard input, a key a line, whose content is its key. It is some twenty times as fast as uploading: a million objects take half a minute.

Examples:

    # A bucket of a million names, to list.
    seq -f 'flat/%08.0f.jpg' 1000000 | ossemu fill --dir /tmp/oss --bucket data`
}

// Run stores the objects.
func (c *fillCmd) Run(s surroundings) (err error) {
	server, err := ossemu.Open(ossemu.Config{Dir: c.Dir, Buckets: []string{c.Bucket}, CheapETags: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	stored, err := fill(server, c.Bucket, s.stdin, s.ctx.Err)
	if err != nil {
		return fmt.Errorf("after %d objects: %w", stored, err)
	}
	fmt.Fprintf(s.stdout, "ossemu stored %d objects\n", stored)
	return nil
}

// fill stores an object for each line of in, until stopped returns an error.
func fill(server *ossemu.Server, bucket string, in io.Reader, stopped func() error) (stored int, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		key := lines.Text()
		if key == "" || len(key) > 1023 {
			return stored, fmt.Errorf("line %d: a key has 1 to 1023 bytes, not %d", stored+1, len(key))
		}
		if _, err := server.Put(bucket, key, strings.NewReader(key)); err != nil {
			return stored, err
		}
		if stored++; stored%1000 == 0 {
			if err := stopped(); err != nil {
				return stored, err
			}
		}
	}
	return stored, lines.Err()
}
