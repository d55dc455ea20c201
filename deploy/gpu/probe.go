package gpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The names of the reasons for which clocks are held down (nvml.h,
// nvmlClocksEventReason…).
const (
	throttleHardware        = "hardware slowdown"
	throttleHardwareThermal = "hardware thermal slowdown"
	throttlePowerBrake      = "hardware power brake"
	throttleThermal         = "software thermal slowdown"
	throttlePower           = "software power cap"
)

var throttles = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksThrottleReasonHwSlowdown, throttleHardware},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, throttleHardwareThermal},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, throttlePowerBrake},
	{nvml.ClocksEventReasonSwThermalSlowdown, throttleThermal},
	{nvml.ClocksEventReasonSwPowerCap, throttlePower},
}

// probe reads devices through one initialised library.
type probe struct {
	lib nvml.Interface
}

// has reports whether the driver's library has a function. Calling one that it has
// not would end the process.
func (p probe) has(symbol string) bool {
	return p.lib.Extensions().LookupSymbol(symbol) == nil
}

// versions returns the versions of driver and CUDA.
func (p probe) versions() (driver, cuda string) {
	if v, ret := p.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		driver = v
	}
	if v, ret := p.lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		cuda = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return driver, cuda
}

// reading collects the answers of one device. An answer "not supported" is a
// fact about the GPU; the first other failure is kept.
type reading struct {
	*Device
}

// took reports whether ret is an answer to what was asked.
func (r reading) took(what string, ret nvml.Return) bool {
	switch ret {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NO_PERMISSION:
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		r.lost = nvml.ErrorString(ret)
	default:
		if r.unread == "" {
			r.unread = what + ": " + nvml.ErrorString(ret)
		}
	}
	return false
}

// device reads the GPU at index.
func (p probe) device(index int) (Device, nvml.Device) {
	d := Device{Index: index, NUMA: -1}
	r := reading{&d}
	h, ret := p.lib.DeviceGetHandleByIndex(index)
	if !r.took("handle", ret) {
		return d, nil
	}
	if v, ret := h.GetUUID(); r.took("uuid", ret) {
		d.UUID = v
	}
	if v, ret := h.GetName(); r.took("name", ret) {
		d.Name = v
	}
	if v, ret := h.GetPciInfo(); r.took("pci", ret) {
		d.PCI = busID(v.Domain, v.Bus, v.Device)
	}
	if v, ret := h.GetMemoryInfo(); r.took("memory", ret) {
		d.Memory = Memory{Total: v.Total, Used: v.Used, Free: v.Free}
	}
	if v, ret := h.GetUtilizationRates(); r.took("utilization", ret) {
		d.Utilization = int(v.Gpu)
	}
	if v, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); r.took("temperature", ret) {
		d.Temperature = int(v)
	}
	if v, ret := h.GetPowerUsage(); r.took("power", ret) {
		d.Power.Draw = v
	}
	if v, ret := h.GetEnforcedPowerLimit(); r.took("power limit", ret) {
		d.Power.Limit = v
	}
	p.memoryErrors(r, h)
	if p.has("nvmlDeviceGetCurrentClocksEventReasons") {
		if v, ret := h.GetCurrentClocksEventReasons(); r.took("clocks", ret) {
			for _, t := range throttles {
				if v&t.bit != 0 {
					d.Throttle = append(d.Throttle, t.name)
				}
			}
		}
	}
	d.Processes = p.processes(r, h)
	p.instances(r, h)
	return d, h
}

// memoryErrors reads ECC, row remapping and page retirement.
func (p probe) memoryErrors(r reading, h nvml.Device) {
	if on, _, ret := h.GetEccMode(); r.took("ecc mode", ret) {
		r.ECC.Enabled = on == nvml.FEATURE_ENABLED
	}
	if r.ECC.Enabled {
		if v, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); r.took("ecc errors", ret) {
			r.ECC.Uncorrected = v
		}
		if v, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC); r.took("ecc errors", ret) {
			r.ECC.Lifetime = v
		}
	}
	if p.has("nvmlDeviceGetRemappedRows") {
		if correctable, uncorrectable, pending, failed, ret := h.GetRemappedRows(); r.took("row remapping", ret) {
			r.Remap = Remap{Correctable: correctable, Uncorrectable: uncorrectable, Pending: pending, Failed: failed}
		}
	}
	if v, ret := h.GetRetiredPagesPendingStatus(); r.took("page retirement", ret) {
		r.RetirePending = v == nvml.FEATURE_ENABLED
	}
}

// instances reads how the GPU is divided. Its processes were read before.
func (p probe) instances(r reading, h nvml.Device) {
	if !p.has("nvmlDeviceGetMigMode") {
		return
	}
	on, _, ret := h.GetMigMode()
	if !r.took("mig mode", ret) || on != nvml.DEVICE_MIG_ENABLE {
		return
	}
	r.MIG.Enabled = true
	most, ret := h.GetMaxMigDeviceCount()
	if !r.took("mig count", ret) {
		return
	}
	for i := range most {
		m, ret := h.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT || !r.took("mig device", ret) {
			continue
		}
		instance := Instance{GPU: -1}
		if v, ret := m.GetUUID(); r.took("mig uuid", ret) {
			instance.UUID = v
		}
		if v, ret := m.GetName(); r.took("mig name", ret) {
			instance.Name = v
		}
		if v, ret := m.GetGpuInstanceId(); r.took("mig instance", ret) {
			instance.GPU = v
		}
		if v, ret := m.GetMemoryInfo(); r.took("mig memory", ret) {
			instance.Memory = Memory{Total: v.Total, Used: v.Used, Free: v.Free}
		}
		// Of a divided GPU only root is told of all processes.
		for _, process := range p.processes(r, m) {
			instance.Processes = append(instance.Processes, process.PID)
			if !slices.ContainsFunc(r.Processes, func(has Process) bool { return has.PID == process.PID }) {
				r.Processes = append(r.Processes, process)
			}
		}
		r.MIG.Instances = append(r.MIG.Instances, instance)
	}
}

// processes lists who computes on a GPU or an instance, by itself or through MPS.
func (p probe) processes(r reading, h nvml.Device) []Process {
	var all []nvml.ProcessInfo
	if v, ret := h.GetComputeRunningProcesses(); r.took("processes", ret) {
		all = v
	}
	if p.has("nvmlDeviceGetMPSComputeRunningProcesses_v3") || p.has("nvmlDeviceGetMPSComputeRunningProcesses") {
		if v, ret := h.GetMPSComputeRunningProcesses(); r.took("mps processes", ret) {
			all = append(all, v...)
		}
	}
	var list []Process
	seen := make(map[uint32]int)
	for _, info := range all {
		// The driver answers all ones where it does not know (under a container's WDDM or
		// without permission).
		memory := info.UsedGpuMemory
		if memory == ^uint64(0) {
			memory = 0
		}
		if at, ok := seen[info.Pid]; ok {
			list[at].Memory += memory // it computes on several MIG instances
			continue
		}
		seen[info.Pid] = len(list)
		list = append(list, Process{PID: int(info.Pid), Memory: memory})
	}
	return list
}

// busID writes a PCI address as the kernel does.
func busID(domain, bus, device uint32) string {
	return strings.ToLower(fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, device))
}
