package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hosts are the hosts on which what holds everywhere is tested: the fake one and,
// where there is NVIDIA's driver, this one.
func hosts(t *testing.T) map[string]*Monitor {
	t.Helper()
	all := map[string]*Monitor{
		"fake": newHost(t, gpus(3, "", "set mig 1\nmig_instance MIG-a 3 5000 1g.10gb"), "0000:01:00.0", "0000:02:00.0", "0000:03:00.0").Monitor,
	}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		m := Open(Config{StateDir: filepath.Join(t.TempDir(), "run")})
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		all["this host"] = m
	}
	return all
}

func TestReadingsHoldTogether(t *testing.T) {
	for name, m := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			h := m.Read()
			if h.Driver == "" || h.CUDA == "" || h.Time.IsZero() || len(h.Devices) == 0 || h.Expected != len(h.Devices) {
				t.Fatalf("host: %+v", h)
			}
			var uuids, addresses []string
			for i, d := range h.Devices {
				t.Logf("%s: %s, %d MiB, %s", d.UUID, d.Name, d.Memory.Total>>20, verdict(d.Health))
				if d.Index != i || d.Name == "" || !strings.HasPrefix(d.UUID, "GPU-") || slices.Contains(uuids, d.UUID) || slices.Contains(addresses, d.PCI) {
					t.Errorf("GPU %d: %+v", i, d)
				}
				uuids, addresses = append(uuids, d.UUID), append(addresses, d.PCI)
				if _, err := os.Stat(filepath.Join("/sys/bus/pci/devices", d.PCI)); name == "this host" && err != nil {
					t.Errorf("GPU %d: %v", i, err)
				}
				if d.Memory.Total == 0 || d.Memory.Used > d.Memory.Total || d.Memory.Free > d.Memory.Total {
					t.Errorf("GPU %d: memory %+v", i, d.Memory)
				}
				if d.Utilization < 0 || d.Utilization > 100 || d.Temperature <= 0 || d.Temperature > 150 {
					t.Errorf("GPU %d: utilisation %d %%, %d degrees", i, d.Utilization, d.Temperature)
				}
				if d.unread != "" || d.Health.State == Unknown {
					t.Errorf("GPU %d cannot be read: %s %+v", i, d.unread, d.Health)
				}
				if d.MIG.Enabled && len(d.MIG.Instances) > 0 && d.MIG.Instances[0].Profile() == "" {
					t.Errorf("GPU %d: the name %q of its instance tells no profile", i, d.MIG.Instances[0].Name)
				}
			}
			for _, l := range h.Links {
				if l.A == l.B || l.A < 0 || l.B < 0 || l.A >= len(h.Devices) || l.B >= len(h.Devices) {
					t.Errorf("link %+v of %d GPUs", l, len(h.Devices))
				}
			}
			again := m.Read()
			if len(again.Devices) != len(h.Devices) || again.Time.Before(h.Time) {
				t.Errorf("read again: %+v", again)
			}
		})
	}
}

func TestAHealthyGPUCanBeChosen(t *testing.T) {
	for name, m := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			h := m.Read()
			chosen, err := Select(h, Request{Count: 1}, func(string) bool { return false })
			if err != nil {
				// A GPU that is used or ill is refused with a reason for each.
				for _, d := range h.Devices {
					if name == "fake" || !strings.Contains(err.Error(), d.UUID) {
						t.Error(err)
					}
				}
				return
			}
			if len(chosen) != 1 || !slices.ContainsFunc(h.Devices, func(d Device) bool { return strings.HasPrefix(chosen[0].ID(), "MIG-") || d.UUID == chosen[0].ID() }) {
				t.Errorf("chosen %v of %+v", chosen, h.Devices)
			}
		})
	}
}
