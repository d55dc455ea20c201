package machine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckFUSE says why this process could not mount at all.
func CheckFUSE(allowOther bool) error {
	const device = "/dev/fuse"
	const remedy = "load the module with modprobe fuse, or give the container the device (--device /dev/fuse)"
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s does not exist, so nothing can be mounted: %s", device, remedy)
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		// fusermount3 opens it for users.
	case err != nil:
		return fmt.Errorf("%s cannot be opened (%w): %s", device, err, remedy)
	default:
		_ = f.Close() // nothing was done with it
	}
	caps, err := ownCapabilities()
	if err != nil {
		return err
	}
	if caps.effective {
		return nil
	}
	if os.Geteuid() == 0 || !caps.bounding || caps.noNewPrivileges {
		return fmt.Errorf("the capability CAP_SYS_ADMIN is missing, so nothing can be mounted: run as root on the host, or give the container --cap-add SYS_ADMIN")
	}
	if _, err := exec.LookPath("fusermount3"); err != nil {
		if _, err := exec.LookPath("fusermount"); err != nil {
			return fmt.Errorf("fusermount3 is not installed, which users need to mount: install the package fuse3, or run as root")
		}
	}
	if allowOther && !fuseConfAllowsOther("/etc/fuse.conf") {
		return fmt.Errorf("--allow-other is not permitted to users here: write user_allow_other into /etc/fuse.conf, or run as root")
	}
	return nil
}

// fuseConfAllowsOther reports whether fusermount3 lets users share their mounts.
func fuseConfAllowsOther(path string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}

// capabilities is what the kernel says of CAP_SYS_ADMIN in this process.
type capabilities struct {
	// effective: this process has it.
	effective bool
	// bounding: a set-user-id program that it starts may have it.
	bounding bool
	// noNewPrivileges: no program that it starts may have more than it.
	noNewPrivileges bool
}

func ownCapabilities() (capabilities, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return capabilities{}, fmt.Errorf("read own capabilities: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	var c capabilities
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff":
			c.effective = hasCapability(value, unix.CAP_SYS_ADMIN)
		case "CapBnd":
			c.bounding = hasCapability(value, unix.CAP_SYS_ADMIN)
		case "NoNewPrivs":
			c.noNewPrivileges = value == "1"
		}
	}
	return c, lines.Err()
}

// hasCapability reports whether the hexadecimal set has the capability.
func hasCapability(set string, capability uint) bool {
	var bits uint64
	if _, err := fmt.Sscanf(set, "%x", &bits); err != nil {
		return false
	}
	return bits&(1<<capability) != 0
}
