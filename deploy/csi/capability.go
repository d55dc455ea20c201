package csi

import (
	"errors"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// access are the access modes, and whether each can only be read.
var access = map[spec.VolumeCapability_AccessMode_Mode]bool{
	spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:       false,
	spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:  true,
	spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:   true,
	spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER: false,
	spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:  false,
}

// optionsOf returns the settings of the mount that a capability asks for, those of more included.
func optionsOf(c *spec.VolumeCapability, more []string) (map[string]string, error) {
	if c == nil {
		return nil, errors.New("no volume capability is given")
	}
	if c.GetMount() == nil {
		return nil, errors.New("the volume cannot be a block device: a bucket has files alone")
	}
	reads, known := access[c.GetAccessMode().GetMode()]
	if !known {
		return nil, fmt.Errorf("access mode %s is not supported: ask for ReadWriteOnce, ReadOnlyMany or ReadWriteMany", c.GetAccessMode().GetMode())
	}
	if t := c.GetMount().GetFsType(); t != "" && t != fsType {
		return nil, fmt.Errorf("fsType %q is not supported: leave it out", t)
	}
	set, err := parseOptions(slices.Concat(c.GetMount().GetMountFlags(), more))
	if err != nil {
		return nil, err
	}
	if reads {
		set["read-only"] = ""
	}
	if group := c.GetMount().GetVolumeMountGroup(); group != "" {
		if gid, given := set["gid"]; given && gid != group {
			return nil, fmt.Errorf("the pod's fsGroup %s and mount option gid=%s say different things: leave one out", group, gid)
		}
		set["gid"] = group
		if _, given := set["umask"]; !given {
			set["umask"] = "002"
		}
	}
	return set, nil
}
