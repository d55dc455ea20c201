package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/control"
)

// measure says how much of the paths is in the cache, and fails unless all is.
func (p program) measure(ctx context.Context, client *control.Client, paths []string, asJSON bool) error {
	var cold int64
	for _, piece := range batches(paths) {
		var result control.MeasureResult
		if err := client.Call(ctx, "measure", control.MeasureParams{Paths: piece}, &result); err != nil {
			return err
		}
		for _, m := range result.Results {
			if err := p.showMeasured(m, asJSON); err != nil {
				return err
			}
			cold += m.Files - m.FilesWarm
			if m.Error != "" {
				cold++
			}
		}
	}
	if cold > 0 {
		return fmt.Errorf("%d files or paths are not in the cache", cold)
	}
	return nil
}

func (p program) showMeasured(m prefetch.Measured, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(p.stdout).Encode(m)
	}
	path := m.Path
	if path == "" {
		path = "."
	}
	text := fmt.Sprintf("%s: %s of %s, %d of %d files", path, humanSize(m.BytesWarm), humanSize(m.Bytes), m.FilesWarm, m.Files)
	if m.Error != "" {
		text += ": " + strings.Join(strings.Fields(m.Error), " ")
	}
	_, err := fmt.Fprintln(p.stdout, text)
	return err
}
