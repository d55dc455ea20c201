package csi

import (
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
)

// publish brings about that a pod sees the mount at from at its directory to. The mount of a dead daemon there stays
// beneath: a container that runs follows what is mounted over it, and nothing that is unmounted.
func publish(from, to string, ro bool) error {
	t, err := readMounts()
	if err != nil {
		return err
	}
	volume := t.at(from)
	if volume == nil {
		return fmt.Errorf("the mount at %s has gone", from)
	}
	switch m := t.at(to); {
	case m == nil:
		if err := os.Mkdir(to, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the directory of the pod: %w", err)
		}
	case m.FSType != fsType:
		return refuse(codes.FailedPrecondition, "%s is a mount of type %s, not of pailfs: unmount it", to, m.FSType)
	case sameMount(m, volume):
		if is := hasOption(m.Options, "ro"); is != ro && !readOnly(volume) {
			return refuse(codes.AlreadyExists, "the volume is published at %s with read-only %t: unpublish it first", to, is)
		}
		return nil
	}
	return bind(from, to, ro)
}
