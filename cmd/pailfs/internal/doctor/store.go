package doctor

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/oss"
)

// credentials judges whether there are keys; err says why not, with the remedy.
type credentials struct{ err error }

func (c credentials) find() Finding {
	if c.err != nil {
		return fail("see the text, and pailfs mount --help", "%s", command.OneLine(c.err)).named("credentials")
	}
	return ok("there are keys").named("credentials")
}

// endpoint judges the answer of the endpoint to a request without keys.
type endpoint struct {
	address string
	took    time.Duration
	err     error
}

func (e endpoint) find() Finding {
	if e.err != nil {
		return fail("check --endpoint, DNS, and whether a firewall or proxy is in the way", "%s does not answer: %s", e.address, command.OneLine(e.err)).named("endpoint")
	}
	return ok("%s answers in %s", e.address, e.took.Round(100*time.Microsecond)).named("endpoint")
}

// clock judges by how much this clock is ahead of the object store's.
type clock struct {
	ahead time.Duration
	// told says that the store told its time.
	told bool
}

const (
	// skewNoticed is more than the seconds in which the store tells its time, and skewRefused what
	// OSS refuses.
	skewNoticed = 30 * time.Second
	skewRefused = 15 * time.Minute
)

func (c clock) find() Finding {
	const name, remedy = "clock", "let chrony or ntpd set this machine's clock"
	off := c.ahead.Abs().Round(time.Second)
	direction := "ahead of"
	if c.ahead < 0 {
		direction = "behind"
	}
	switch {
	case !c.told:
		return warn("check that the endpoint is one of OSS", "the endpoint does not tell its time").named(name)
	case off >= skewRefused:
		return fail(remedy, "this clock is %s %s the object store's, which refuses requests from %s on", off, direction, skewRefused).named(name)
	case off >= skewNoticed:
		return warn(remedy, "this clock is %s %s the object store's", off, direction).named(name)
	}
	return ok("this clock agrees with the object store's").named(name)
}

// region judges whether endpoint and region belong together, and which way the bytes go.
type region struct{ endpoint, region string }

func (r region) find() Finding {
	const name = "region"
	host := r.endpoint
	if u, err := url.Parse(r.endpoint); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	label, service := strings.CutSuffix(strings.ToLower(host), ".aliyuncs.com")
	id, of := strings.CutPrefix(label[strings.LastIndexByte(label, '.')+1:], "oss-")
	if !service || !of {
		return ok("%s is not one of Alibaba Cloud's own addresses: its region is not known", host).named(name)
	}
	id, internal := strings.CutSuffix(id, "-internal")
	switch {
	case r.region != "" && r.region != id && id != "accelerate":
		return fail("write --region "+id+", or the endpoint of "+r.region, "the endpoint is in %s, and --region says %s", id, r.region).named(name)
	case !internal:
		return warn("inside that region write https://oss-"+id+"-internal.aliyuncs.com: it is faster, and its traffic is free", "%s is the public endpoint of %s", host, id).named(name)
	}
	return ok("the internal endpoint of %s", id).named(name)
}

// right judges one thing that the keys must be allowed.
type right struct {
	// name is list, get or put.
	name string
	// on is what it was tried on; "" where there was nothing to try it on.
	on  string
	err error
}

func (r right) find() Finding {
	name := "right: " + r.name
	switch {
	case r.err == nil && r.on == "":
		return warn("check the prefix, or ignore this where nothing was written yet", "nothing is there to try it on").named(name)
	case r.err == nil:
		return ok("%s", r.on).named(name)
	case errors.Is(r.err, oss.ErrAccessDenied):
		return fail(fmt.Sprintf("allow it in the RAM policy or the bucket's policy (%s), or use other keys", actions[r.name]), "%s", command.OneLine(r.err)).named(name)
	}
	return fail("see the text", "%s", command.OneLine(r.err)).named(name)
}

// actions are the rights as RAM calls them.
var actions = map[string]string{
	"list": "oss:ListObjects", "get": "oss:GetObject", "put": "oss:PutObject, oss:DeleteObject",
}

// throttling judges whether the store slows these keys down.
type throttling struct {
	requests int
	times    uint64
	failed   error
}

func (t throttling) find() Finding {
	const name, remedy = "throttling", "other users of the bucket take its rate: ask for a higher quota, or let them use fewer requests"
	switch {
	case t.times > 0:
		return warn(remedy, "of %d requests at once the object store told %d to slow down", t.requests, t.times).named(name)
	case t.failed != nil:
		return warn("try again", "of %d requests at once one failed: %s", t.requests, command.OneLine(t.failed)).named(name)
	}
	return ok("%d requests at once were answered", t.requests).named(name)
}
