package gpu

import (
	"fmt"
	"slices"
	"time"
)

// State is what may be expected of a GPU.
type State string

// The states, best first.
const (
	// Healthy: nothing speaks against work.
	Healthy State = "Healthy"
	// Degraded: it works, but slower or not for long. New work goes elsewhere if it can.
	Degraded State = "Degraded"
	// Unknown: it could not be asked.
	Unknown State = "Unknown"
	// Unhealthy: work on it fails or returns wrong results.
	Unhealthy State = "Unhealthy"
)

// severity orders states.
func (s State) severity() int { return slices.Index([]State{Healthy, Degraded, Unknown, Unhealthy}, s) }

// Verdict is a state with its reasons, the gravest first.
type Verdict struct {
	State   State    `json:"state"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// Reason is one piece of evidence.
type Reason struct {
	State State `json:"state"`
	// Code is a word that programs may compare, such as XID79 or RowRemapPending.
	Code string `json:"code"`
	// Message says what was seen and what helps.
	Message string `json:"message"`
}

// add takes one more reason into v.
func (v *Verdict) add(s State, code, format string, args ...any) {
	v.Reasons = append(v.Reasons, Reason{State: s, Code: code, Message: fmt.Sprintf(format, args...)})
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int { return b.State.severity() - a.State.severity() })
	if s.severity() > v.State.severity() {
		v.State = s
	}
}

const (
	// An XID is held against a GPU for at least xidHold, and until cleanProbes
	// readings in a row after that found nothing wrong.
	xidHold     = time.Minute
	cleanProbes = 3
	maxXIDs     = 32
	// hot is the temperature, in degrees Celsius, that is worth a word.
	hot = 90
)

// record is what is remembered of one GPU between readings.
type record struct {
	xids []XID
	// charge is the XID that is held against the GPU, nil if there is none.
	charge *XID
	clean  int
}

// fatal reports whether an XID speaks against the GPU rather than the program on
// it. The codes that do not are those that NVIDIA's device plugin ignores too:
// faults of applications (13, 31, 43, 45, 109) and of video decoding (68).
func (x XID) fatal() bool {
	switch x.Code {
	case 13, 31, 43, 45, 68, 109:
		return false
	}
	return true
}

// meaning says in words what an XID is; the list is of those that name hardware.
func (x XID) meaning() string {
	switch x.Code {
	case 48:
		return "double-bit ECC error"
	case 62, 119, 120:
		return "the GPU's system processor failed"
	case 63:
		return "a memory page or row is to be retired"
	case 64:
		return "retiring a memory page or row failed"
	case 74:
		return "NVLink error"
	case 79:
		return "the GPU has fallen off the bus"
	case 92:
		return "many single-bit ECC errors"
	case 94:
		return "contained ECC error"
	case 95:
		return "uncontained ECC error"
	}
	return "see NVIDIA's list of XID errors"
}

// note remembers an XID.
func (r *record) note(x XID) {
	r.xids = append(r.xids, x)
	if n := len(r.xids) - maxXIDs; n > 0 {
		r.xids = slices.Delete(r.xids, 0, n)
	}
	if x.fatal() {
		r.charge, r.clean = &x, 0
	}
}

// judge returns the verdict on d, read at now, given what is remembered, and
// remembers what the reading says of the charge.
func (r *record) judge(d *Device, now time.Time) Verdict {
	v := evidence(d)
	if r.charge == nil {
		return v
	}
	switch {
	case v.State == Unhealthy || v.State == Unknown || now.Sub(r.charge.Time) < xidHold:
		r.clean = 0
	default:
		r.clean++
	}
	if r.clean >= cleanProbes {
		r.charge = nil
		return v
	}
	v.add(Unhealthy, fmt.Sprintf("XID%d", r.charge.Code), "the driver reported XID %d at %s: %s; reset the GPU or restart the host if it stays",
		r.charge.Code, r.charge.Time.UTC().Format(time.RFC3339), r.charge.meaning())
	return v
}

// evidence returns the verdict on what was read of d alone.
func evidence(d *Device) Verdict {
	v := Verdict{State: Healthy}
	if d.Index < 0 {
		v.add(Unhealthy, "Missing", "it was there since the host booted and the driver does not list it now; restart the host")
		return v
	}
	if d.lost != "" {
		v.add(Unhealthy, "Lost", "the driver answers %q; reset the GPU or restart the host", d.lost)
		return v
	}
	if d.unread != "" {
		v.add(Unknown, "Unreadable", "the driver did not answer: %s", d.unread)
	}
	if d.Remap.Failed {
		v.add(Unhealthy, "RowRemapFailed", "remapping a faulty memory row failed: there are no spare rows; replace the GPU")
	}
	if d.ECC.Uncorrected > 0 {
		v.add(Unhealthy, "UncorrectedECC", "%d uncorrectable memory errors since the last reset; reset the GPU", d.ECC.Uncorrected)
	}
	if d.Remap.Pending {
		v.add(Degraded, "RowRemapPending", "a memory row waits to be remapped; reset the GPU when its work has ended")
	}
	if d.RetirePending {
		v.add(Degraded, "PageRetirementPending", "memory pages wait to be retired; restart the host when its work has ended")
	}
	for _, reason := range d.Throttle {
		switch reason {
		case throttleHardware, throttleHardwareThermal, throttlePowerBrake:
			v.add(Degraded, "Throttled", "clocks are held down (%s) at %d °C; check cooling and power", reason, d.Temperature)
		}
	}
	if d.Temperature >= hot {
		v.add(Degraded, "Hot", "%d °C; check cooling", d.Temperature)
	}
	return v
}

// judgeHost returns the verdict on h.
func judgeHost(h *Host) Verdict {
	v := Verdict{State: Healthy}
	read := 0
	for i := range h.Devices {
		d := &h.Devices[i]
		if d.Index >= 0 {
			read++
		}
		for _, r := range d.Health.Reasons {
			v.add(r.State, r.Code, "%s: %s", d.UUID, r.Message)
		}
	}
	if missing := h.Expected - len(h.Devices); missing > 0 {
		v.add(Unhealthy, "Absent", "%d of %d GPUs on the PCI bus are not listed by the driver; see dmesg for NVRM lines", missing, h.Expected)
	}
	if read == 0 && len(v.Reasons) == 0 {
		v.add(Unknown, "NoGPU", "the driver lists no GPU")
	}
	return v
}
