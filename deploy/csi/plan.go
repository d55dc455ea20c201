package csi

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// request is what a call says of a volume.
type request struct {
	id         string
	attributes map[string]string
	capability *spec.VolumeCapability
	secrets    map[string]string
	inline     bool
}

// plan returns how the daemon of a volume is started at a directory, and the keys that it gets; nil without.
func (n *node) plan(r request, at string) (daemon, []byte, error) {
	var known []string
	if r.inline {
		known = []string{attrMountOptions}
	}
	a, err := parseAttributes(r.attributes, known...)
	if err != nil {
		return daemon{}, nil, err
	}
	if r.inline && a.Credentials != fromSecret && a.Credentials != "anonymous" {
		return daemon{}, nil, fmt.Errorf("attribute credentials is %q: a volume that a pod declares brings a Secret of its own, for whoever writes a pod would use the node's rights", a.Credentials)
	}
	set, err := optionsOf(r.capability, a.MountOptions)
	if err != nil {
		return daemon{}, nil, err
	}
	d := daemon{Source: a.Source, At: at, Inline: r.inline, CacheDir: filepath.Join(n.cfg.CacheDir, digest(r.id, a.Source, a.Endpoint))}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		d.Flags = append(d.Flags, flag(name, set[name]))
	}
	d.Flags = append(d.Flags, flag("endpoint", a.Endpoint))
	if a.Region != "" {
		d.Flags = append(d.Flags, flag("region", a.Region))
	}
	d.Asked = append(slices.Clone(d.Flags), "source="+a.Source, "credentials="+a.Credentials)

	dir := filepath.Join(n.cfg.RunDir, digest(r.id))
	d.Flags = append(d.Flags, "--allow-other", "--drop-privileges", flag("cache-dir", d.CacheDir), flag("log-file", filepath.Join(dir, "log")))
	if a.Credentials != fromSecret {
		if len(r.secrets) > 0 {
			return daemon{}, nil, errors.New("the volume names a Secret and other credentials: leave one out")
		}
		d.Flags = append(d.Flags, flag("credentials", a.Credentials))
		return d, nil, nil
	}
	d.Flags = append(d.Flags, "--credentials=file", flag("credentials-file", filepath.Join(dir, "credentials")))
	if _, err := parseSecret(r.secrets); err != nil {
		return d, nil, err
	}
	return d, []byte(r.secrets[secretKey]), nil
}
