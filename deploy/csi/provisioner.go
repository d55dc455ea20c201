package csi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
)

// marker is what an object says of a provisioned volume.
type marker struct {
	// Version is of this form; 1.
	Version int `json:"version"`
	// Name is what the orchestrator calls the volume, Prefix where its objects are.
	Name   string `json:"name"`
	Prefix string `json:"prefix"`
	// OnDelete is what becomes of the objects, as the class said.
	OnDelete string `json:"on_delete"`
	// Credentials is where the nodes' keys come from.
	Credentials string `json:"credentials"`
	// Capacity is what was asked for, in bytes. Nothing holds a volume to it.
	Capacity int64 `json:"capacity"`
}

const markerVersion = 1

// provisioner makes and removes volumes in a bucket. A volume is there as long as its marker is; its objects go first.
type provisioner struct {
	bucket oss.Bucket
	closed func() error
}

// openProvisioner opens the bucket of a place, with the keys of a Secret if there is one, else with what the driver's
// environment has.
func openProvisioner(p place, secret map[string]string) (*provisioner, error) {
	cfg := credentials.Config{Kind: credentials.Auto}
	if len(secret) > 0 {
		k, err := parseSecret(secret)
		if err != nil {
			return nil, err
		}
		cfg = credentials.Config{Kind: credentials.Static, AccessKeyID: k.AccessKeyID, AccessKeySecret: k.AccessKeySecret, SecurityToken: k.SecurityToken}
	}
	// A mount can be told to send tokens over plain HTTP, by its volume's mountOptions. Nobody tells the driver.
	cfg.RefuseTokens = credentials.Exposed(p.Endpoint)
	log := slog.New(slog.DiscardHandler) // what fails is an error of the call
	source, err := credentials.Open(cfg, log)
	if errors.Is(err, credentials.ErrTokenExposed) {
		return nil, fmt.Errorf("%s: %w: write https://, or give the controller keys without a token", p.Endpoint, err)
	} else if err != nil {
		return nil, err
	}
	client, err := oss.Open(oss.Config{Endpoint: p.Endpoint, Region: p.Region, Bucket: p.Bucket, Credentials: source}, nil, nil, log)
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return &provisioner{client.As(oss.Demand), func() error { return errors.Join(client.Close(), source.Close()) }}, nil
}

func (v *provisioner) close() { _ = v.closed() } // all was answered

// maxMarker is the largest marker that is read, in bytes.
const maxMarker = 64 << 10

// read returns the marker of a place, nil if there is none.
func (v *provisioner) read(ctx context.Context, p place) (*marker, error) {
	info, err := v.bucket.Head(ctx, p.markerKey())
	switch {
	case errors.Is(err, oss.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for volume %s: %w", p.source(), err)
	case info.Size == 0 || info.Size > maxMarker:
		return nil, fmt.Errorf("object %s has %d bytes and is no marker of a volume", p.markerKey(), info.Size)
	}
	text := make([]byte, info.Size)
	if _, err := v.bucket.ReadRange(ctx, oss.RangeRequest{Object: info.Object, Buffer: text}); err != nil {
		return nil, fmt.Errorf("read marker of volume %s: %w", p.source(), err)
	}
	var m marker
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("object %s is no marker of a volume: %w", p.markerKey(), err)
	}
	if m.Version != markerVersion {
		return nil, fmt.Errorf("object %s is a marker of version %d, and %d is known: use a newer driver", p.markerKey(), m.Version, markerVersion)
	}
	if m.Prefix != p.prefix() {
		return nil, fmt.Errorf("object %s is the marker of prefix %q and not of %q", p.markerKey(), m.Prefix, p.prefix())
	}
	return &m, nil
}

// errOccupied means that there are objects where a volume would be.
var errOccupied = errors.New("there are objects that no volume is known of")

// create writes a volume's marker, if there is none, and returns the one that is there.
func (v *provisioner) create(ctx context.Context, p place, want marker) (*marker, error) {
	if there, err := v.read(ctx, p); there != nil || err != nil {
		return there, err
	}
	page, err := v.bucket.List(ctx, oss.ListRequest{Prefix: p.prefix(), MaxKeys: 1})
	if err != nil {
		return nil, fmt.Errorf("look below %s: %w", p.source(), err)
	}
	if len(page.Objects) > 0 {
		return nil, fmt.Errorf("%w: %s", errOccupied, page.Objects[0].Key)
	}
	text, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	_, err = v.bucket.Put(ctx, p.markerKey(), bytes.NewReader(text), oss.PutOptions{ContentType: "application/json", ForbidOverwrite: true})
	if errors.Is(err, oss.ErrExists) {
		return v.read(ctx, p) // another call was first
	} else if err != nil {
		return nil, fmt.Errorf("write marker of volume %s: %w", p.source(), err)
	}
	return &want, nil
}

// remove removes a volume: its objects if its class said so, and then its marker. What has no marker is let alone.
func (v *provisioner) remove(ctx context.Context, p place) error {
	m, err := v.read(ctx, p)
	if m == nil || err != nil {
		return err
	}
	if m.OnDelete == onDeleteRemove {
		if err := v.empty(ctx, p.prefix()); err != nil {
			return err
		}
	}
	if err := v.bucket.Delete(ctx, p.markerKey()); err != nil {
		return fmt.Errorf("remove marker of volume %s: %w", p.source(), err)
	}
	return nil
}

// empty removes all objects, and uploads that were not completed, below a prefix.
func (v *provisioner) empty(ctx context.Context, prefix string) error {
	uploads, err := v.bucket.ListUploads(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list uploads below %s: %w", prefix, err)
	}
	for _, u := range uploads {
		if !strings.HasPrefix(u.Key, prefix) {
			return fmt.Errorf("the object store lists upload %s below %s", u.Key, prefix)
		}
		if err := v.bucket.AbortUpload(ctx, u); err != nil {
			return fmt.Errorf("abort upload of %s: %w", u.Key, err)
		}
	}
	for token := ""; ; {
		page, err := v.bucket.List(ctx, oss.ListRequest{Prefix: prefix, Token: token})
		if err != nil {
			return fmt.Errorf("list below %s: %w", prefix, err)
		}
		var keys []string
		for _, o := range page.Objects {
			// What is removed is not the store's to decide.
			if !strings.HasPrefix(o.Key, prefix) {
				return fmt.Errorf("the object store lists object %s below %s", o.Key, prefix)
			}
			keys = append(keys, o.Key)
		}
		if len(keys) > 0 {
			if err := v.bucket.Delete(ctx, keys...); err != nil {
				return fmt.Errorf("remove objects below %s: %w", prefix, err)
			}
		}
		if token = page.Next; token == "" {
			return nil
		}
	}
}
