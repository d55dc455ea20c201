package gpu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReadingTellsWhatTheDriverSays(t *testing.T) {
	h := newHost(t, gpus(2, "set util 37\nset power 250000\nset throttle 4\nname NVIDIA H100 80GB HBM3", "set mig 1\nmig_instance MIG-a 3 5000 1g.10gb\nmig_proc 4194303 5"),
		"0000:01:00.0", "0000:02:00.0")
	got := h.Read()
	if got.Driver != "550.54" || got.CUDA != "12.4" || got.Expected != 2 || len(got.Devices) != 2 {
		t.Fatalf("host: %+v", got)
	}
	d := got.Devices[0]
	if d.UUID != "GPU-0" || d.Name != "NVIDIA H100 80GB HBM3" || d.PCI != "0000:01:00.0" || d.NUMA != 0 || d.Utilization != 37 || d.Temperature != 40 ||
		d.Power != (Power{Draw: 250000, Limit: 700000}) || d.Memory != (Memory{Total: 1e9, Used: 1000, Free: 1e9 - 1000}) ||
		len(d.Throttle) != 1 || d.Throttle[0] != throttlePower || !d.ECC.Enabled {
		t.Errorf("device: %+v", d)
	}
	if got := verdict(got.Health); got != "Healthy" {
		t.Errorf("a power cap is no fault: %s", got)
	}
	m := got.Devices[1].MIG
	want := []Instance{{UUID: "MIG-a", Name: "Fake GPU MIG 1g.10gb", GPU: 3, Memory: Memory{Total: 5000, Free: 5000}, Processes: []int{4194303}}}
	if !m.Enabled || !reflect.DeepEqual(m.Instances, want) || m.Instances[0].Profile() != "1g.10gb" || len(got.Devices[1].Processes) != 1 {
		t.Errorf("MIG: %+v, processes %+v", m, got.Devices[1].Processes)
	}
}

func TestEachFaultHasItsReason(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"set lost 1", "Unhealthy Lost"},
		{"set lost 2", "Unhealthy Lost"},
		{"set broken 1", "Unknown Unreadable"},
		{"set ecc_uncorrected 2", "Unhealthy UncorrectedECC"},
		{"set remap_failed 1", "Unhealthy RowRemapFailed"},
		{"set remap_pending 1", "Degraded RowRemapPending"},
		{"set retire_pending 1", "Degraded PageRetirementPending"},
		{"set throttle 64", "Degraded Throttled"},
		{"set temp 95", "Degraded Hot"},
		{"set remap_pending 1\nset ecc_uncorrected 1", "Unhealthy UncorrectedECC RowRemapPending"},
		{"set util 1", "Healthy"},
	} {
		t.Run(c.set, func(t *testing.T) {
			h := newHost(t, gpus(2, "", c.set))
			r := h.Read()
			if got := verdict(r.Devices[1].Health); got != c.want {
				t.Errorf("device: %s, want %s", got, c.want)
			}
			if got := verdict(r.Devices[0].Health); got != "Healthy" {
				t.Errorf("the other device: %s", got)
			}
			if got := verdict(r.Health); got != c.want {
				t.Errorf("host: %s, want %s", got, c.want)
			}
			h.say(gpus(2))
			if got := verdict(h.Read().Health); got != "Healthy" {
				t.Errorf("without the evidence: %s", got)
			}
		})
	}
}

func TestHostWithoutDriverIsUnknown(t *testing.T) {
	none := Open(Config{Library: "/nonexistent/libnvidia-ml.so.1", StateDir: t.TempDir(), Sys: t.TempDir()})
	r := none.Read()
	if got := verdict(r.Health); got != "Unknown NoDriver" || !strings.Contains(r.Health.Reasons[0].Message, "is not on this host") {
		t.Errorf("no library: %s: %+v", got, r.Health)
	}
	h := newHost(t, "driver none\n", "0000:01:00.0")
	r = h.Read()
	if got := verdict(r.Health); got != "Unknown NoDriver" || !strings.Contains(r.Health.Reasons[0].Message, "1 NVIDIA GPUs are on the PCI bus") {
		t.Errorf("no module: %s: %+v", got, r.Health)
	}
	if h.Cards() != 1 || none.Cards() != 0 {
		t.Errorf("%d and %d cards on the PCI bus", h.Cards(), none.Cards())
	}
}

func TestDriverMayBeReloadedUnderTheMonitor(t *testing.T) {
	h := newHost(t, gpus(1))
	h.Read()
	h.say("driver none\n")
	if got := verdict(h.Read().Health); got != "Unknown NoDriver" {
		t.Errorf("unloaded: %s", got)
	}
	h.say(gpus(1))
	if got := verdict(h.Read().Health); got != "Healthy" {
		t.Errorf("loaded again: %s", got)
	}
}

func TestGPUThatTheDriverDoesNotListIsMissed(t *testing.T) {
	h := newHost(t, gpus(2), "0000:01:00.0", "0000:02:00.0", "0000:03:00.0")
	r := h.Read()
	if got := verdict(r.Health); got != "Unhealthy Absent" || r.Expected != 3 {
		t.Errorf("on the bus and not listed: %s, %d expected", got, r.Expected)
	}

	h = newHost(t, gpus(2))
	h.Read()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.start() // another process, of the same boot
	h.say(gpus(1))
	r = h.Read()
	if got := verdict(r.Health); got != "Unhealthy Missing" || len(r.Devices) != 2 || r.Devices[1].UUID != "GPU-1" || r.Devices[1].Index != -1 {
		t.Errorf("seen since boot and gone: %s, %+v", got, r.Devices)
	}
	h.say(gpus(2, "", "set lost 1"))
	r = h.Read()
	if got := verdict(r.Health); got != "Unhealthy Lost" || len(r.Devices) != 2 || r.Devices[1].UUID != "GPU-1" {
		t.Errorf("listed and lost: %s, %+v", got, r.Devices)
	}
	h.say(gpus(2))
	if got := verdict(h.Read().Health); got != "Healthy" {
		t.Errorf("back again: %s", got)
	}
}

func TestCensusOfAnotherBootIsForgotten(t *testing.T) {
	h := newHost(t, gpus(1))
	h.file(h.dir+"/run/gpus.json", `{"boot":"another","seen":{"GPU-9":{}}}`)
	if r := h.Read(); len(r.Devices) != 1 {
		t.Errorf("devices: %+v", r.Devices)
	}
}

func TestXIDsAreHeardAndForgiven(t *testing.T) {
	h := newHost(t, gpus(2))
	h.Read()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, nil) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	// 31 is a fault of the program's.
	h.say(gpus(2, "xid 1 31", "xid 2 79"))
	eventually(t, "the second XID", func() bool { return len(h.Read().Devices[1].XIDs) == 1 })
	r := h.Read()
	if got := verdict(r.Devices[0].Health); got != "Healthy" || len(r.Devices[0].XIDs) != 1 || r.Devices[0].XIDs[0].Code != 31 {
		t.Errorf("XID 31: %s, %+v", got, r.Devices[0].XIDs)
	}
	if got := verdict(r.Health); got != "Unhealthy XID79" {
		t.Errorf("XID 79: %s", got)
	}
}

func TestChargeIsHeldUntilCleanReadingsFollow(t *testing.T) {
	start := time.Now()
	r := &record{}
	r.note(XID{Code: 48, Time: start})
	well, ill := &Device{}, &Device{lost: "GPU is lost"}
	for i, step := range []struct {
		device *Device
		after  time.Duration
		want   string
	}{
		{well, time.Second, "Unhealthy XID48"},
		{well, xidHold, "Unhealthy XID48"},
		{well, xidHold + 1, "Unhealthy XID48"},
		{ill, xidHold + 2, "Unhealthy Lost XID48"},
		{well, xidHold + 3, "Unhealthy XID48"},
		{well, xidHold + 4, "Unhealthy XID48"},
		{well, xidHold + 5, "Healthy"},
		{well, xidHold + 6, "Healthy"},
	} {
		if got := verdict(r.judge(step.device, start.Add(step.after))); got != step.want {
			t.Fatalf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

func TestProcessesAreJoinedWithProc(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	// It has been started, and may not be the program yet.
	eventually(t, "the child to have its name", func() bool {
		name, err := os.ReadFile("/proc/" + itoa(child.Process.Pid) + "/comm")
		return err == nil && string(name) == "sleep\n"
	})
	h := newHost(t, gpus(1, "proc "+itoa(child.Process.Pid)+" 4096\nproc 4194303 1"))
	p := h.Read().Devices[0].Processes
	if len(p) != 2 || p[0].Name != "sleep" || p[0].Memory != 4096 || p[0].UID != uint32(os.Getuid()) || p[1].Name != "" {
		t.Errorf("processes: %+v", p)
	}
}
