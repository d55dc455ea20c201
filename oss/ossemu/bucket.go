package ossemu

import (
	"errors"
	"net/http"
	"strings"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

func (s *Server) region() string {
	if s.cfg.Region != "" {
		return s.cfg.Region
	}
	return DefaultRegion
}

func (s *Server) location() string { return "oss-" + s.region() }

// endpoint is the service's host as the client named it.
func (q *request) endpoint() string {
	host := q.r.Host
	if rest, ok := strings.CutPrefix(host, q.bucket+"."); ok && q.domains[hostOnly(rest)] {
		return rest
	}
	return host
}

// bucketRequest is a request about a bucket as such, or about all of them.
type bucketRequest struct{ *request }

func (q bucketRequest) listBuckets() (*reply, error) {
	limit, err := q.parameter("max-keys", 100, 1, maxListPage)
	if err != nil {
		return nil, err
	}
	prefix, marker := q.query.get("prefix"), q.query.get("marker")
	if strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, invalidArgument("prefix", prefix, "No bucket can have this prefix.")
	}
	buckets, more := q.store.Buckets(prefix, marker, limit)
	q.work.Entries = len(buckets)
	d := newDocument("ListAllMyBucketsResult")
	d.text("Prefix", prefix)
	d.text("Marker", marker)
	d.int("MaxKeys", int64(limit))
	d.bool("IsTruncated", more)
	if more {
		d.text("NextMarker", buckets[len(buckets)-1].Name)
	}
	d.owner()
	d.open("Buckets")
	for _, b := range buckets {
		d.open("Bucket")
		q.placeOf(d, b)
		d.text("Name", b.Name)
		d.text("Region", q.region())
		d.text("StorageClass", q.showStorageClass(b.StorageClass))
		d.close("Bucket")
	}
	d.close("Buckets")
	return q.xml(d, "ListAllMyBucketsResult"), nil
}

// placeOf writes since when and where a bucket is.
func (q bucketRequest) placeOf(d *document, b store.Bucket) {
	d.time("CreationDate", b.Created)
	d.text("ExtranetEndpoint", q.endpoint())
	d.text("IntranetEndpoint", q.endpoint())
	d.text("Location", q.location())
}

func (q bucketRequest) putBucket() (*reply, error) {
	acl, err := parseBucketACL(q.header("Acl"))
	if err != nil {
		return nil, err
	}
	info := store.Bucket{Name: q.bucket, ACL: acl, StorageClass: defaultStorageClass, Redundancy: "LRS"}
	b, err := q.document(maxDocument)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(b)) != "" {
		root, err := parseXML(b)
		if err != nil || root.name != "CreateBucketConfiguration" {
			return nil, errMalformedXML
		}
		if v := root.value("StorageClass"); v != "" {
			info.StorageClass = v
		}
		if v := root.value("DataRedundancyType"); v != "" {
			info.Redundancy = v
		}
	}
	err = q.store.CreateBucket(info)
	if errors.Is(err, store.ErrBucketExists) {
		// It has the same owner, so this is no conflict.
		err = nil
		if q.header("Acl") != "" {
			err = q.store.SetBucketACL(q.bucket, acl)
		}
	}
	if err != nil {
		return nil, err
	}
	q.set("Location", "/"+q.bucket)
	return ok(), nil
}

func (q bucketRequest) deleteBucket() (*reply, error) {
	if err := q.store.DeleteBucket(q.bucket); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusNoContent}, nil
}

func (q bucketRequest) headBucket() (*reply, error) {
	if _, err := q.store.Bucket(q.bucket); err != nil {
		return nil, err
	}
	return ok(), nil
}

func (q bucketRequest) getBucketInfo() (*reply, error) {
	b, err := q.store.Bucket(q.bucket)
	if err != nil {
		return nil, err
	}
	d := newDocument("BucketInfo")
	d.open("Bucket")
	d.text("AccessMonitor", "Disabled")
	q.placeOf(d, b)
	d.text("StorageClass", b.StorageClass)
	d.text("TransferAcceleration", "Disabled")
	d.text("CrossRegionReplication", "Disabled")
	d.text("DataRedundancyType", b.Redundancy)
	d.text("Name", b.Name)
	d.owner()
	d.open("AccessControlList")
	d.text("Grant", b.ACL)
	d.close("AccessControlList")
	d.text("Comment", "")
	d.open("ServerSideEncryptionRule")
	d.text("SSEAlgorithm", "None")
	d.close("ServerSideEncryptionRule")
	d.open("BucketPolicy")
	d.text("LogBucket", "")
	d.text("LogPrefix", "")
	d.close("BucketPolicy")
	d.close("Bucket")
	return q.xml(d, "BucketInfo"), nil
}

func (q bucketRequest) getBucketLocation() (*reply, error) {
	if _, err := q.store.Bucket(q.bucket); err != nil {
		return nil, err
	}
	d := newDocument("LocationConstraint")
	d.b = append(d.b, q.location()...)
	return q.xml(d, "LocationConstraint"), nil
}

func (q bucketRequest) getBucketStat() (*reply, error) {
	u, err := q.store.Usage(q.bucket)
	if err != nil {
		return nil, err
	}
	d := newDocument("BucketStat")
	d.int("Storage", u.Bytes+u.PartBytes)
	d.int("ObjectCount", u.Objects)
	d.int("MultipartUploadCount", u.Uploads)
	d.int("MultipartPartCount", u.Parts)
	d.int("LiveChannelCount", 0)
	d.int("LastModifiedTime", q.now().Unix())
	d.int("StandardStorage", u.Bytes+u.PartBytes)
	d.int("StandardObjectCount", u.Objects)
	return q.xml(d, "BucketStat"), nil
}

func (q bucketRequest) getBucketVersioning() (*reply, error) {
	if _, err := q.store.Bucket(q.bucket); err != nil {
		return nil, err
	}
	return q.xml(newDocument("VersioningConfiguration"), "VersioningConfiguration"), nil
}

// getBucketSetting answers what nobody has set: buckets have no such settings
// here.
func (q bucketRequest) getBucketSetting() (*reply, error) {
	if _, err := q.store.Bucket(q.bucket); err != nil {
		return nil, err
	}
	for _, p := range q.query {
		s, known := bucketSettings[p.name]
		switch {
		case !known:
		case s.absent != nil:
			return nil, s.absent
		default:
			return q.xml(newDocument(s.document), s.document), nil
		}
	}
	return nil, errNotImplemented
}
