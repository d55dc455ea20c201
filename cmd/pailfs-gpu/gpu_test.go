package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/pailfs/pailfs/deploy/gpu"
)

func TestGPUShowsHealthWithReasons(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "name NVIDIA H100", "set remap_pending 1\nproc 4194303 1048576")
	p := h.start("pailfs-gpu", "gpu")
	if p.code() != 0 {
		t.Fatalf("exit code %d: %s", p.code(), &p.errOut)
	}
	for _, want := range []string{"driver 550.54, CUDA 12.4, 2 of 2 GPUs, Degraded", "NVIDIA H100", "process 4194303", "RowRemapPending: GPU-1"} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &p.out)
		}
	}
	h.say(2, "set lost 1")
	p = h.start("pailfs-gpu", "gpu", "--json")
	if p.code() != 1 {
		t.Errorf("with a lost GPU: exit code %d", p.code())
	}
	var r gpu.Host
	if err := json.Unmarshal([]byte(p.out.String()), &r); err != nil || r.Health.State != gpu.Unhealthy || len(r.Devices) != 2 || r.Devices[0].UUID != "GPU-0" {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestNoDriverIsSaid(t *testing.T) {
	t.Parallel()
	h := newHost(t, 0)
	p := h.start("pailfs-gpu", "gpu")
	if p.code() != exitNoGPU || !strings.Contains(p.out.String(), "Unknown: NoDriver: no driver") {
		t.Errorf("exit code %d:\n%s%s", p.code(), &p.out, &p.errOut)
	}
	p = h.run("--gpus", "1", "--", "true")
	if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "no driver") {
		t.Errorf("run: exit code %d: %s", p.code(), &p.errOut)
	}
}

func TestWatchTellsOfAnXIDAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	p := h.start("pailfs-gpu", "gpu", "--watch", "--json", "--interval", "1h")
	eventually(t, "the first reading", func() bool { return strings.Contains(p.out.String(), "GPU-0") })
	h.say(1, "xid 1 79")
	eventually(t, "the reading after the XID", func() bool { return strings.Contains(p.out.String(), `"code":"XID79"`) })
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if p.code() != 0 {
		t.Errorf("interrupted: exit code %d: %s", p.code(), &p.errOut)
	}
}

func TestPailfsHandsOver(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	p := h.start("pailfs", "gpu", "--json")
	if p.code() != 0 || !strings.Contains(p.out.String(), `"uuid": "GPU-0"`) {
		t.Errorf("gpu: exit code %d: %s%s", p.code(), &p.out, &p.errOut)
	}
	p = h.start("pailfs", "run", "--lock-dir", h.dir+"/locks", "--", "sh", "-c", "exit 5")
	if p.code() != 5 {
		t.Errorf("run: exit code %d: %s", p.code(), &p.errOut)
	}
	p = h.start("pailfs", "run", "--help")
	if p.code() != 0 || !strings.Contains(p.out.String(), "torchrun") {
		t.Errorf("help: exit code %d: %s%s", p.code(), &p.out, &p.errOut)
	}
}
