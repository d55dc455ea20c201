//go:build race

package programtest

const raceEnabled = true
