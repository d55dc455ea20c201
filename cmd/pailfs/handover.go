package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// gpuCmd stands in --help for the commands of pailfs-gpu, which need cgo.
type gpuCmd struct{}

// gpuProgram is the program that handOver becomes.
const gpuProgram = "pailfs-gpu"

// handOver becomes pailfs-gpu, which lies beside this program or on PATH. It
// returns only if that fails.
func (p program) handOver() error {
	var path string
	if self, err := os.Executable(); err == nil {
		path = filepath.Join(filepath.Dir(self), gpuProgram)
	}
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(gpuProgram); err != nil {
			return errors.New("the program " + gpuProgram + " is neither beside pailfs nor on PATH: build both with make build, or install both")
		}
	}
	if err := syscall.Exec(path, append([]string{gpuProgram}, p.args...), p.environ); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
