package main

import (
	"fmt"
	"syscall"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// gpuCmd stands in --help for the commands of pailfs-gpu, which need cgo.
type gpuCmd struct{}

// execGPU becomes pailfs-gpu, which lies beside this program or on PATH. It returns only if that
// fails.
func execGPU(p command.Program) error {
	const name = "pailfs-gpu"
	path, err := p.Beside(name, "build both with make build, or install both")
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, append([]string{name}, p.Args...), p.Environ); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
