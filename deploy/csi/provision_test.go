package csi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// class is what a class asks for.
func (w *world) class(onDelete string) *spec.CreateVolumeRequest {
	return &spec.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: []*spec.VolumeCapability{rwx()}, Secrets: goodSecret(),
		Parameters: map[string]string{attrSource: "oss://" + testBucket + "/team", attrEndpoint: w.endpoint, attrOnDelete: onDelete},
	}
}

func TestVolumesAreProvisionedOnceAndRefusedInWords(t *testing.T) {
	w := newWorld(t)
	first, err := w.CreateVolume(t.Context(), w.class(onDeleteRemove))
	w.must(err)
	again, err := w.CreateVolume(t.Context(), w.class(onDeleteRemove))
	if err != nil || !proto.Equal(first, again) {
		t.Errorf("again: %v, %v", again, err)
	}
	w.put("team/taken/file", "theirs")
	for name, c := range map[string]struct {
		change func(*spec.CreateVolumeRequest)
		code   codes.Code
	}{
		"no name":        {func(r *spec.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument},
		"no capability":  {func(r *spec.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument},
		"an option":      {func(r *spec.CreateVolumeRequest) { r.VolumeCapabilities[0] = rwx("http=80") }, codes.InvalidArgument},
		"a bad value":    {func(r *spec.CreateVolumeRequest) { r.VolumeCapabilities[0] = rwx("memory=much") }, codes.InvalidArgument},
		"a parameter":    {func(r *spec.CreateVolumeRequest) { r.Parameters["path"] = "/" }, codes.InvalidArgument},
		"a bad onDelete": {func(r *spec.CreateVolumeRequest) { r.Parameters[attrOnDelete] = "Delete" }, codes.InvalidArgument},
		"a bad endpoint": {func(r *spec.CreateVolumeRequest) { r.Parameters[attrEndpoint] = "ftp://x" }, codes.InvalidArgument},
		"a word as host": {func(r *spec.CreateVolumeRequest) { r.Parameters[attrEndpoint] = "https://minio" }, codes.InvalidArgument},
		"a query":        {func(r *spec.CreateVolumeRequest) { r.Parameters[attrEndpoint] += "?a=b" }, codes.InvalidArgument},
		"an empty part":  {func(r *spec.CreateVolumeRequest) { r.Parameters[attrSource] += "//x" }, codes.InvalidArgument},
		"a way up":       {func(r *spec.CreateVolumeRequest) { r.Parameters[attrSource] += "/../x" }, codes.InvalidArgument},
		"a bad region":   {func(r *spec.CreateVolumeRequest) { r.Parameters[attrRegion] = "a/b" }, codes.InvalidArgument},
		"a source":       {func(r *spec.CreateVolumeRequest) { r.VolumeContentSource = &spec.VolumeContentSource{} }, codes.InvalidArgument},
		"a long prefix":  {func(r *spec.CreateVolumeRequest) { r.Parameters[attrSource] += strings.Repeat("/deep", 30) }, codes.InvalidArgument},
		"a capacity": {func(r *spec.CreateVolumeRequest) {
			r.CapacityRange = &spec.CapacityRange{RequiredBytes: 2, LimitBytes: 1}
		}, codes.OutOfRange},
		"more than there is":  {func(r *spec.CreateVolumeRequest) { r.CapacityRange = &spec.CapacityRange{RequiredBytes: 2} }, codes.AlreadyExists},
		"another end":         {func(r *spec.CreateVolumeRequest) { r.Parameters[attrOnDelete] = onDeleteRetain }, codes.AlreadyExists},
		"what others have":    {func(r *spec.CreateVolumeRequest) { r.Name = "taken" }, codes.AlreadyExists},
		"wrong keys":          {func(r *spec.CreateVolumeRequest) { r.Secrets[secretKey] = `{"AccessKeyId":"x","AccessKeySecret":"y"}` }, codes.PermissionDenied},
		"a Secret of nothing": {func(r *spec.CreateVolumeRequest) { r.Secrets = map[string]string{"x": "y"} }, codes.InvalidArgument},
	} {
		r := w.class(onDeleteRemove)
		c.change(r)
		_, err := w.CreateVolume(t.Context(), r)
		w.code(name, err, c.code)
	}
	valid := &spec.ValidateVolumeCapabilitiesRequest{VolumeId: first.GetVolume().GetVolumeId(), VolumeCapabilities: []*spec.VolumeCapability{rwx("ro")}, Secrets: goodSecret()}
	if r, err := w.ValidateVolumeCapabilities(t.Context(), valid); err != nil || r.GetConfirmed() == nil {
		t.Errorf("validate: %v, %v", r, err)
	}
	valid.VolumeCapabilities[0] = rwx("http=80")
	if r, err := w.ValidateVolumeCapabilities(t.Context(), valid); err != nil || r.GetConfirmed() != nil || r.GetMessage() == "" {
		t.Errorf("validate: %v, %v", r, err)
	}
	valid.VolumeId += "0"
	_, err = w.ValidateVolumeCapabilities(t.Context(), valid)
	w.code("validate what is not there", err, codes.NotFound)
}

// A mount of the volume may be told to send a token over plain HTTP, the controller may not.
func TestTheControllerSendsNoTokenOverPlainHTTP(t *testing.T) {
	w := newWorld(t)
	const token = "token-of-a-session"
	secret := map[string]string{secretKey: `{"AccessKeyId":"` + testKeyID + `","AccessKeySecret":"` + testSecret + `","SecurityToken":"` + token + `"}`}
	r := w.class(onDeleteRemove)
	r.Secrets, r.Parameters[attrEndpoint] = secret, "http://192.0.2.1"
	r.VolumeCapabilities[0] = rwx("allow-plain-http")
	id, err := placeOf(attributes{Source: r.Parameters[attrSource], Endpoint: r.Parameters[attrEndpoint]}, r.Name).id()
	w.must(err)
	_, created := w.CreateVolume(t.Context(), r)
	_, removed := w.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: id, Secrets: secret})
	_, validated := w.ValidateVolumeCapabilities(t.Context(), &spec.ValidateVolumeCapabilitiesRequest{
		VolumeId: id, VolumeCapabilities: r.GetVolumeCapabilities(), Secrets: secret,
	})
	for call, err := range map[string]error{"create": created, "remove": removed, "validate": validated} {
		w.code(call, err, codes.InvalidArgument)
		if text := fmt.Sprint(err); !strings.Contains(text, "write https://") || strings.Contains(text, token) {
			t.Errorf("%s: %s", call, text)
		}
	}
	// On the same machine there is nobody on the way.
	r = w.class(onDeleteRemove)
	r.Secrets = secret
	_, err = w.CreateVolume(t.Context(), r)
	w.code("a token to this machine", err, codes.PermissionDenied)
}

// Objects go where the class says so, and nowhere else; what failed in the middle goes on.
func TestRemovalStaysBelowThePrefixAndGoesOn(t *testing.T) {
	w := newWorld(t)
	kept := []string{"team/pvc-1.file", "team/pvc-10/file", "team/pvc-2/file", "root"}
	slices.Sort(kept)
	for _, key := range kept {
		w.put(key, "theirs")
	}
	made, err := w.CreateVolume(t.Context(), w.class(onDeleteRemove))
	w.must(err)
	for _, key := range []string{"team/pvc-1/a", "team/pvc-1/b/c", "team/pvc-1/.hidden", "team/pvc-1/d/"} {
		w.put(key, "ours")
	}
	remove := func(id string) error {
		_, err := w.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: id, Secrets: goodSecret()})
		return err
	}
	id := made.GetVolume().GetVolumeId()
	// Ids that name something else, or climb.
	for _, foreign := range []string{
		strings.TrimSuffix(id, "/pvc-1"), id + "/b", id + "/../pvc-2", strings.TrimSuffix(id, "pvc-1") + "pvc-2", strings.TrimSuffix(id, "team/pvc-1"), "static", "a/b",
	} {
		w.must(remove(foreign))
	}
	if n := len(w.keys()); n != len(kept)+5 {
		t.Fatalf("something was removed: %v", w.keys())
	}
	w.must(w.emulator.SetFaults([]ossemu.Fault{{Operation: "DeleteMultipleObjects", Kind: ossemu.FaultError, Code: "AccessDenied"}}))
	w.code("remove while the store refuses", remove(id), codes.PermissionDenied)
	w.must(w.emulator.SetFaults(nil))
	w.must(remove(id))
	w.must(remove(id))
	if keys := w.keys(); !slices.Equal(keys, kept) {
		t.Errorf("left are %v, want %v", keys, kept)
	}

	made, err = w.CreateVolume(t.Context(), w.class(onDeleteRetain))
	w.must(err)
	w.put("team/pvc-1/a", "ours")
	w.must(remove(made.GetVolume().GetVolumeId()))
	if keys := w.keys(); !slices.Contains(keys, "team/pvc-1/a") || len(keys) != len(kept)+1 {
		t.Errorf("a class that retains left %v", keys)
	}
}

func TestIDsSayWhereAVolumeIs(t *testing.T) {
	for id, p := range map[string]place{
		"cn-hangzhou-internal@cn-hangzhou/bucket/team/a/pvc-1": {"https://oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou", "bucket", "team/a/", "pvc-1"},
		"oss.example.com/bucket/pvc-1":                         {"https://oss.example.com", "", "bucket", "", "pvc-1"},
		"http+127.0.0.1:80/bucket/pvc-1":                       {"http://127.0.0.1:80", "", "bucket", "", "pvc-1"},
		"http+minio/bucket/pvc-1":                              {"http://minio", "", "bucket", "", "pvc-1"},
		"minio:443@here/bucket/pvc-1":                          {"https://minio:443", "here", "bucket", "", "pvc-1"},
	} {
		if got, err := p.id(); got != id || err != nil {
			t.Errorf("%v: %q, %v, want %q", p, got, err, id)
		}
		if got, err := parseID(id); got != p || err != nil {
			t.Errorf("%q: %v, %v, want %v", id, got, err, p)
		}
	}
	for _, id := range []string{"", "a", "a/b", "a/b/", "a//c", "a/b/..", "a/./c", "/b/c", strings.Repeat("a", maxID) + "/b/c"} {
		if p, err := parseID(id); err == nil {
			t.Errorf("%q is %v", id, p)
		}
	}
}
