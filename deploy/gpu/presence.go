package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// nvidia is the vendor's number on the PCI bus.
const nvidia = "0x10de"

// system is where the kernel tells of its devices and processes.
type system struct {
	// sys and proc are the mount points of sysfs and procfs.
	sys, proc string
}

// cards returns the PCI addresses of all GPUs of the vendor, whether or not a
// driver serves them: display controllers of the classes VGA and 3D.
func (s system) cards() []string {
	root := filepath.Join(s.sys, "bus/pci/devices")
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // no PCI bus
	}
	var cards []string
	for _, e := range entries {
		vendor, class := s.word(root, e.Name(), "vendor"), s.word(root, e.Name(), "class")
		if vendor == nvidia && (strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")) {
			cards = append(cards, e.Name())
		}
	}
	return cards
}

// numa returns the node of the card at a PCI address, -1 if there is just one.
func (s system) numa(pci string) int {
	node, err := strconv.Atoi(s.word(s.sys, "bus/pci/devices", pci, "numa_node"))
	if err != nil {
		return -1
	}
	return node
}

// word reads a small file of the kernel's.
func (s system) word(path ...string) string {
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// boot returns what names this boot of the host.
func (s system) boot() string { return s.word(s.proc, "sys/kernel/random/boot_id") }

// census remembers, on a file system that does not outlive the host's boot or
// with the boot's id, which GPUs were seen since then.
type census struct {
	Boot string `json:"boot"`
	// Seen are the GPUs by UUID.
	Seen map[string]seen `json:"seen"`
}

type seen struct {
	Name string `json:"name"`
	PCI  string `json:"pci"`
}

// readCensus returns the census of this boot in file, which may not exist.
func readCensus(file, boot string) (census, error) {
	c := census{Boot: boot, Seen: make(map[string]seen)}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	var old census
	if err := json.Unmarshal(b, &old); err != nil {
		return c, fmt.Errorf("read %s: %w: remove it, it is made anew", file, err)
	}
	if old.Boot == boot && old.Seen != nil {
		return old, nil
	}
	return c, nil
}

// take notes the devices that were read, says whether that was news, and returns
// those that were seen before and are not there now. A single device that is there
// and does not say its name is the single one that is missing.
func (c *census) take(devices []Device) (news bool, missing []Device) {
	here := make(map[string]bool)
	var nameless []*Device
	for i := range devices {
		d := &devices[i]
		if d.UUID == "" {
			nameless = append(nameless, d)
			continue
		}
		here[d.UUID] = true
		if _, ok := c.Seen[d.UUID]; !ok {
			c.Seen[d.UUID] = seen{Name: d.Name, PCI: d.PCI}
			news = true
		}
	}
	for uuid, s := range c.Seen {
		if !here[uuid] {
			missing = append(missing, Device{Index: -1, UUID: uuid, Name: s.Name, PCI: s.PCI, NUMA: -1})
		}
	}
	if len(nameless) == 1 && len(missing) == 1 {
		d, was := nameless[0], missing[0]
		d.UUID, d.Name, d.PCI = was.UUID, was.Name, was.PCI
		return news, nil
	}
	slices.SortFunc(missing, func(a, b Device) int { return strings.Compare(a.UUID, b.UUID) })
	return news, missing
}

// write puts the census into file at once or not at all.
func (c *census) write(file string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".census-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
