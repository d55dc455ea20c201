package csi

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// place is where a provisioned volume is: its id says it, for a call that deletes has nothing else.
type place struct {
	Endpoint, Region, Bucket string
	// Base is empty or ends with a slash; Name is the volume's directory below it.
	Base, Name string
}

// prefix begins the key of each object of the volume.
func (p place) prefix() string { return p.Base + p.Name + "/" }

// source is what is mounted.
func (p place) source() string { return "oss://" + p.Bucket + "/" + p.Base + p.Name }

// markerKey is the key of the object that says that the volume was provisioned, and how. It lies outside of it.
func (p place) markerKey() string { return p.Base + ".pailfs/volumes/" + p.Name }

// maxID is how long an id may be, in bytes.
const maxID = 128

// aliyun are the addresses of the service, which ids have in short.
var aliyun = regexp.MustCompile(`^https://oss-([a-z0-9-]+)\.aliyuncs\.com$`)

// id returns the volume's id, of which [parseID] makes the same place, or refuses: ENDPOINT[@REGION]/BUCKET/PREFIX, where
// cn-hangzhou-internal is https://oss-cn-hangzhou-internal.aliyuncs.com, another host is one with https, and http+ stands
// before one without.
func (p place) id() (string, error) {
	endpoint := p.Endpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" ||
		u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("attribute %s is %q: give one such as https://oss-cn-hangzhou-internal.aliyuncs.com", attrEndpoint, p.Endpoint)
	}
	short := u.Host
	if m := aliyun.FindStringSubmatch("https://" + u.Host); u.Scheme == "https" && m != nil {
		short = m[1]
	} else if u.Scheme == "http" {
		short = "http+" + u.Host
	} else if !strings.ContainsAny(short, ".:") {
		// It would read as a region of the service.
		return "", fmt.Errorf("attribute %s is %q, a host without a dot: give its port as well, such as https://%s:443", attrEndpoint, p.Endpoint, u.Host)
	}
	if strings.ContainsAny(p.Region, "@/") {
		return "", fmt.Errorf("attribute %s is %q: give one such as cn-hangzhou", attrRegion, p.Region)
	}
	if p.Region != "" {
		short += "@" + p.Region
	}
	path := p.Bucket + "/" + p.Base + p.Name
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return "", fmt.Errorf("attribute %s has the part %q between slashes: give a prefix such as oss://bucket/team/data", attrSource, part)
		}
	}
	id := short + "/" + path
	if len(id) > maxID {
		return "", fmt.Errorf("the volume's id would have %d bytes, and %d are allowed: provision below a shorter prefix of %s", len(id), maxID, attrSource)
	}
	return id, nil
}

// errForeign means that an id is not one of a provisioned volume.
var errForeign = errors.New("not the id of a provisioned volume")

// parseID is the inverse of id.
func parseID(id string) (place, error) {
	parts := strings.Split(id, "/")
	if len(parts) < 3 {
		return place{}, errForeign
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return place{}, errForeign
		}
	}
	short, region, _ := strings.Cut(parts[0], "@")
	p := place{Region: region, Bucket: parts[1], Name: parts[len(parts)-1], Endpoint: "https://" + short}
	if dirs := parts[2 : len(parts)-1]; len(dirs) > 0 {
		p.Base = strings.Join(dirs, "/") + "/"
	}
	if host, plain := strings.CutPrefix(short, "http+"); plain {
		p.Endpoint = "http://" + host
	} else if !strings.ContainsAny(short, ".:") {
		p.Endpoint = "https://oss-" + short + ".aliyuncs.com"
	}
	if again, err := p.id(); err != nil || again != id {
		return place{}, errForeign
	}
	return p, nil
}

// plainName is what a volume's directory may be called.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// placeOf returns where a volume with a name is provisioned.
func placeOf(a attributes, name string) place {
	bucket, base, _ := strings.Cut(strings.TrimPrefix(a.Source, "oss://"), "/")
	if base != "" {
		base += "/"
	}
	if !plainName.MatchString(name) {
		name = "v-" + digest(name)
	}
	return place{Endpoint: strings.TrimSuffix(a.Endpoint, "/"), Region: a.Region, Bucket: bucket, Base: base, Name: name}
}
