package main

import (
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, nil) }
