//go:build !race

package programtest

const raceEnabled = false
