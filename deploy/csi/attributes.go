package csi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The attributes of a volume, which are the parameters of a class as well.
const (
	// attrSource is oss://BUCKET or oss://BUCKET/PREFIX; of a class, where prefixes are provisioned.
	attrSource = "source"
	// attrEndpoint is the address of the object store, attrRegion its region, which may be left out.
	attrEndpoint = "endpoint"
	attrRegion   = "region"
	// attrCredentials is where the keys come from: see credentialKinds.
	attrCredentials = "credentials"
	// attrMountOptions are options of an inline volume, separated by commas; others have them in mountOptions.
	attrMountOptions = "mountOptions"
	// attrOnDelete is for classes alone: what becomes of the objects when the volume is deleted.
	attrOnDelete = "onDelete"
)

// The values of attrOnDelete.
const (
	onDeleteRetain = "retain"
	onDeleteRemove = "delete"
)

// fromSecret is the kind of credentials that a Secret holds.
const fromSecret = "secret"

// credentialKinds are the places of keys; all but fromSecret are those of pailfs mount.
var credentialKinds = []string{fromSecret, "ecs-ram-role", "oidc", "anonymous"}

// foreign begins the names of what Kubernetes adds to the attributes by itself.
const foreign = "csi.storage.k8s.io/"

// ephemeralKey says that a pod declares the volume inline.
const ephemeralKey = foreign + "ephemeral"

// attributes are what a volume says of itself.
type attributes struct {
	Source, Endpoint, Region, Credentials string
	MountOptions                          []string
	OnDelete                              string
}

// parseAttributes reads the attributes of a volume, or the parameters of a class. Only known is
// taken besides those that each volume may have.
func parseAttributes(given map[string]string, known ...string) (attributes, error) {
	var a attributes
	common := []string{attrSource, attrEndpoint, attrRegion, attrCredentials}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if strings.HasPrefix(name, foreign) || strings.HasPrefix(name, "storage.kubernetes.io/") {
			continue
		}
		if !slices.Contains(common, name) && !slices.Contains(known, name) {
			return a, fmt.Errorf("attribute %q is unknown: give %s", name, strings.Join(append(common, known...), ", "))
		}
		switch name {
		case attrSource:
			a.Source = strings.TrimSuffix(value, "/")
		case attrEndpoint:
			a.Endpoint = value
		case attrRegion:
			a.Region = value
		case attrCredentials:
			a.Credentials = value
		case attrMountOptions:
			for option := range strings.SplitSeq(value, ",") {
				if option = strings.TrimSpace(option); option != "" {
					a.MountOptions = append(a.MountOptions, option)
				}
			}
		case attrOnDelete:
			a.OnDelete = value
		}
	}
	return a, a.check()
}

// check refuses what cannot be.
func (a *attributes) check() error {
	if a.Credentials == "" {
		a.Credentials = fromSecret
	}
	if a.OnDelete == "" {
		a.OnDelete = onDeleteRetain
	}
	switch {
	case !strings.HasPrefix(a.Source, "oss://"):
		return fmt.Errorf("attribute %s is %q: give oss://BUCKET or oss://BUCKET/PREFIX", attrSource, a.Source)
	case a.Endpoint == "":
		return fmt.Errorf("attribute %s is not set: give one such as https://oss-cn-hangzhou-internal.aliyuncs.com", attrEndpoint)
	case !slices.Contains(credentialKinds, a.Credentials):
		return fmt.Errorf("attribute %s is %q: give %s", attrCredentials, a.Credentials, strings.Join(credentialKinds, ", "))
	case a.OnDelete != onDeleteRetain && a.OnDelete != onDeleteRemove:
		return fmt.Errorf("parameter %s is %q: give %s or %s", attrOnDelete, a.OnDelete, onDeleteRetain, onDeleteRemove)
	}
	return nil
}
