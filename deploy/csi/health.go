package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// status is what the driver reads of `pailfs status --json`.
type status struct {
	Cache struct {
		SSD *struct {
			State     string `json:"state"`
			LastError string `json:"last_error"`
		} `json:"ssd"`
	} `json:"cache"`
	Store struct {
		Credentials struct {
			Error string `json:"error"`
		} `json:"credentials"`
		Refused *struct {
			Reason string `json:"reason"`
		} `json:"refused"`
	} `json:"store"`
	Writing *struct {
		FailingCount int `json:"failing_count"`
		SuspectCount int `json:"suspect_count"`
	} `json:"writing"`
}

// state is how the mount of a volume is.
type state int

const (
	// alive answers.
	alive state = iota
	// absent is not there.
	absent
	// dead is a mount whose daemon is gone.
	dead
	// stuck does not answer.
	stuck
)

// look says how the mount at path, which is in the table, is.
func (n *node) look(ctx context.Context, path string) (state, *status, error) {
	out, err := n.asking.status(ctx, n.pailfs, path)
	if failed, ok := errors.AsType[*commandError](err); ok {
		if failed.code == exitDead {
			return dead, nil, nil
		}
		if strings.Contains(failed.text, "does not answer") {
			return stuck, nil, nil
		}
		return stuck, nil, err
	}
	switch {
	case errors.Is(err, errStuck):
		return stuck, nil, nil
	case err != nil:
		return stuck, nil, err
	}
	var s status
	if err := json.Unmarshal(out, &s); err != nil {
		return alive, nil, fmt.Errorf("read the status of %s: %w", path, err)
	}
	return alive, &s, nil
}

// problem is one thing that is wrong with a volume.
type problem struct {
	kind            spec.VolumeHealthErrorType
	reason, message string
}

// problems says what is wrong with a mount.
func problems(at string, st state, s *status) (all []problem) {
	add := func(kind spec.VolumeHealthErrorType, reason, format string, args ...any) {
		all = append(all, problem{kind, reason, fmt.Sprintf(format, args...)})
	}
	switch st {
	case absent:
		add(spec.VolumeHealthErrorType_INACCESSIBLE, "NotMounted", "nothing is mounted at %s", at)
	case dead:
		add(spec.VolumeHealthErrorType_INACCESSIBLE, "DaemonDead", "the daemon of the volume has died; it is started again when a pod's volume is published or published again")
	case stuck:
		add(spec.VolumeHealthErrorType_INACCESSIBLE, "DaemonStuck", "the daemon of the volume does not answer; pailfs umount --force %s on the node ends it", at)
	}
	if s == nil {
		return all
	}
	if s.Store.Refused != nil {
		add(spec.VolumeHealthErrorType_DEGRADED, "AccessRefused", "the object store refuses access: %s", s.Store.Refused.Reason)
	}
	if e := s.Store.Credentials.Error; e != "" {
		add(spec.VolumeHealthErrorType_DEGRADED, "CredentialsNotRenewed", "the keys cannot be renewed: %s", e)
	}
	if d := s.Cache.SSD; d != nil && d.State != "ok" {
		add(spec.VolumeHealthErrorType_DEGRADED, "CacheFailing", "the cache disk is %s: %s", d.State, d.LastError)
	}
	if w := s.Writing; w != nil && w.FailingCount > 0 {
		add(spec.VolumeHealthErrorType_DEGRADED, "UploadsFailing", "%d files that were written cannot be uploaded", w.FailingCount)
	}
	if w := s.Writing; w != nil && w.SuspectCount > 0 {
		add(spec.VolumeHealthErrorType_DATA_LOSS, "WrittenDataLost", "the cache disk lost some of %d files that were written", w.SuspectCount)
	}
	return all
}
