package gpu

import (
	"strings"
	"time"
)

// Host is what was read of all GPUs of this host at one time.
type Host struct {
	// Time is when the reading ended.
	Time time.Time `json:"time"`
	// Driver is the version of the kernel driver, CUDA the newest version of CUDA
	// that it serves, both empty without a driver.
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// Expected is how many GPUs there should be: those on the PCI bus or, if there
	// were more, those that were seen since the host booted.
	Expected int `json:"expected"`
	// Devices are the GPUs in the driver's order, then those that are missing.
	Devices []Device `json:"devices"`
	// Links says how near each pair of devices is, the nearest first.
	Links []Link `json:"links,omitempty"`
	// Health is the verdict on the host: the worst of its devices'.
	Health Verdict `json:"health"`
}

// Device is one GPU.
type Device struct {
	// Index is the driver's, -1 for a GPU that is missing.
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Name  string `json:"name,omitempty"`
	// PCI is the address on the bus, as in 0000:3b:00.0.
	PCI string `json:"pci,omitempty"`
	// NUMA is the node that the GPU is attached to, -1 if there is just one.
	NUMA   int    `json:"numa"`
	Memory Memory `json:"memory"`
	// Utilization is the share of the last sample period, in percent, in which a
	// kernel ran.
	Utilization int `json:"utilization_percent"`
	// Temperature is in degrees Celsius.
	Temperature int   `json:"temperature_celsius"`
	Power       Power `json:"power"`
	// Throttle names why clocks are held down now, without idleness.
	Throttle []string `json:"throttle,omitempty"`
	ECC      ECC      `json:"ecc"`
	Remap    Remap    `json:"row_remapping"`
	// RetirePending says that pages wait for a reboot to be retired.
	RetirePending bool `json:"page_retirement_pending,omitempty"`
	MIG           MIG  `json:"mig"`
	// Processes use the GPU for computing, MIG instances' included.
	Processes []Process `json:"processes,omitempty"`
	// XIDs are the driver's errors of this GPU since the monitor began, the newest last,
	// at most maxXIDs.
	XIDs   []XID   `json:"xids,omitempty"`
	Health Verdict `json:"health"`

	// lost is the driver's answer if the GPU does not work any more, unread the
	// first call that failed otherwise.
	lost, unread string
}

// Memory is device memory in bytes.
type Memory struct {
	Total uint64 `json:"total"`
	Used  uint64 `json:"used"`
	Free  uint64 `json:"free"`
}

// Power is in milliwatts; zero where the GPU does not tell.
type Power struct {
	Draw  uint32 `json:"draw_milliwatts"`
	Limit uint32 `json:"limit_milliwatts"`
}

// ECC counts memory errors.
type ECC struct {
	Enabled bool `json:"enabled"`
	// Uncorrected counts those that could not be corrected since the GPU was reset.
	Uncorrected uint64 `json:"uncorrected"`
	// Lifetime counts them since the GPU was made.
	Lifetime uint64 `json:"uncorrected_lifetime"`
}

// Remap is the state of row remapping (Ampere and newer).
type Remap struct {
	Correctable   int `json:"correctable"`
	Uncorrectable int `json:"uncorrectable"`
	// Pending says that a remapping waits for a reset, Failed that one failed: there
	// are no spare rows.
	Pending bool `json:"pending,omitempty"`
	Failed  bool `json:"failed,omitempty"`
}

// MIG says how a GPU is divided.
type MIG struct {
	Enabled   bool       `json:"enabled"`
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one MIG device.
type Instance struct {
	UUID string `json:"uuid"`
	// Name is the GPU's with the profile at its end, as in NVIDIA A100-SXM4-80GB MIG 1g.10gb.
	Name   string `json:"name,omitempty"`
	GPU    int    `json:"gpu_instance"`
	Memory Memory `json:"memory"`
	// Processes are those of the GPU's processes that compute on this instance.
	Processes []int `json:"processes,omitempty"`
}

// Profile is how large the instance is, as in 1g.10gb, empty if its name does not say so.
func (i Instance) Profile() string {
	if _, profile, ok := strings.Cut(i.Name, "MIG "); ok {
		return profile
	}
	return ""
}

// Process is a program that computes on a GPU.
type Process struct {
	// PID is in the host's PID namespace.
	PID int `json:"pid"`
	// Name is the command's, empty if /proc does not show the process.
	Name string `json:"name,omitempty"`
	UID  uint32 `json:"uid"`
	// Memory is what it holds of the GPU's, in bytes.
	Memory uint64 `json:"memory"`
	// Mounts are the pailfs mounts in which the process or a descendant of it (a
	// loader's worker) has a file open, mapped, or its working directory.
	Mounts []string `json:"mounts,omitempty"`
}

// XID is an error that the driver reported of a GPU. NVIDIA's "XID Errors" lists
// the codes.
type XID struct {
	Code uint64    `json:"code"`
	Time time.Time `json:"time"`
	// Instance is the MIG GPU instance, -1 for the whole GPU.
	Instance int `json:"gpu_instance"`
}

// Link says how near two devices are.
type Link struct {
	A int `json:"a"`
	B int `json:"b"`
	// NVLinks is how many NVLinks lead directly from one to the other.
	NVLinks int `json:"nvlinks"`
	// Path names what a transfer over PCI Express must pass: internal, switch,
	// switches, host-bridge, node or system.
	Path string `json:"path"`
}
