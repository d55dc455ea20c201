// Package gpu says what the GPUs of this host are and how well they are.
//
// A [Monitor] asks NVML, which it loads when the program runs, and joins the
// answers with what the kernel knows: the cards on the PCI bus (presence.go), the
// processes that use them and the mounts that those read from (processes.go).
// What it makes of the readings is a [Verdict] with its reasons (health.go), a pure
// function of what was read now and what was remembered: verdicts recover when the
// evidence is gone. [Select] chooses free, healthy GPUs that are near each other
// (select.go), and [Lease] keeps two programs from choosing the same ones.
//
// Without a driver there is no error but a host whose verdict is Unknown.
//
// The package needs cgo and imports nothing else of pailfs; the data path does not
// know it. DESIGN.md says why things are as they are.
package gpu
