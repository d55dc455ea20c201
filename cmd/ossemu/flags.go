package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

// flagGroups are the headings of --help.
var flagGroups = []kong.Group{
	{Key: "service", Title: "Service:"},
	{Key: "shape", Title: "How slow it is (each overrides the profile; all can be changed while it runs, at --admin):"},
}

// serveCmd holds the flags of serve.
type serveCmd struct {
	Dir        string            `required:"" group:"service" placeholder:"DIR" help:"Directory of the data; made if missing. One server at a time."`
	Addr       string            `default:"127.0.0.1:9000" group:"service" placeholder:"HOST:PORT" help:"Where to serve, 127.0.0.1:9000 if not said. Port 0 takes a free one."`
	Admin      string            `group:"service" placeholder:"HOST:PORT" help:"Where to serve counters, faults and shape, without authentication: a loopback address."`
	Bucket     []string          `group:"service" placeholder:"NAME" sep:"none" help:"Make this bucket if missing. May be repeated."`
	Region     string            `group:"service" placeholder:"REGION" help:"The only region that signatures may name, such as cn-hangzhou. Without it every one is accepted."`
	PathStyle  string            `default:"allow" enum:"allow,deny" group:"service" help:"Whether a bucket may be named in the path: allow, or deny as the real service does."`
	Domain     []string          `group:"service" placeholder:"HOST" sep:"none" help:"Serve BUCKET.HOST and HOST, such as oss.test. May be repeated."`
	CName      map[string]string `name:"cname" group:"service" placeholder:"HOST=BUCKET" help:"Serve a bucket under a host name of its own. May be repeated."`
	Gzip       bool              `group:"service" help:"Compress texts on the fly for clients that accept it, as the real service does."`
	S3Strict   bool              `name:"s3-strict" group:"service" help:"Refuse the aws-chunked uploads that the real service refuses."`
	CheapETags bool              `name:"cheap-etags" group:"service" help:"Make ETags of the CRC-64, not the MD5: uploads cost about half the processor time."`
	CopyLimit  string            `default:"1GiB" group:"service" placeholder:"SIZE" help:"Largest object that one copy request copies, 1GiB if not said."`
	Credential string            `name:"credentials-file" group:"service" placeholder:"FILE" help:"Further keys and STS tokens, one a line: ID:SECRET[:TOKEN[:EXPIRES]]; EXPIRES is RFC 3339, such as 2030-01-02T15:04:05Z. Nobody else may be able to read it."`
	Verbose    bool              `group:"service" help:"Say what goes wrong with single connections as well."`

	Profile               string         `default:"none" enum:"none,seed,accelerator,cold-slow" group:"shape" help:"none: as fast as it can; seed: object storage in the same region; accelerator: its SSD tier; cold-slow: a distant region."`
	GetFirstByte          *time.Duration `group:"shape" placeholder:"30ms" help:"Median time to the first byte of a GET."`
	HeadLatency           *time.Duration `group:"shape" placeholder:"12ms" help:"Median time of a HEAD and of other small questions."`
	PutLatency            *time.Duration `group:"shape" placeholder:"35ms" help:"Median time from the last byte of an upload to its answer."`
	ListLatency           *time.Duration `group:"shape" placeholder:"20ms" help:"Median time of a listing page."`
	ListLatencyPerEntry   *time.Duration `group:"shape" placeholder:"100us" help:"Further time for every entry of a page."`
	CopyLatency           *time.Duration `group:"shape" placeholder:"30ms" help:"Median time of a copy, beside that of its bytes."`
	CopyRate              *shape.Rate    `group:"shape" placeholder:"500MB" help:"How fast bytes are copied inside the server."`
	CompleteLatency       *time.Duration `group:"shape" placeholder:"50ms" help:"Median time of completing a multipart upload."`
	Sigma                 *float64       `group:"shape" placeholder:"0.4" help:"Spread of all latencies: the standard deviation of their logarithm. 0 makes them constant."`
	TailProbability       *float64       `group:"shape" placeholder:"0.001" help:"Share of requests whose latency is multiplied by 10 to 30."`
	DownloadPerConnection *shape.Rate    `group:"shape" placeholder:"100MB" help:"Bytes per second of one download."`
	UploadPerConnection   *shape.Rate    `group:"shape" placeholder:"60MB" help:"Bytes per second of one upload."`
	Spread                *float64       `group:"shape" placeholder:"0.4" help:"How much the rate of one request differs from the above: each draws its own, from 1-SPREAD to 1+SPREAD times."`
	Download              *shape.Rate    `group:"shape" placeholder:"600MB" help:"Bytes per second of all downloads together."`
	Upload                *shape.Rate    `group:"shape" placeholder:"600MB" help:"Bytes per second of all uploads together."`
	QPS                   *float64       `name:"qps" group:"shape" placeholder:"10000" help:"Requests per second; more are refused with 429 QpsLimitExceeded."`
	RTT                   *time.Duration `name:"rtt" group:"shape" placeholder:"1ms" help:"Added to the first request of every connection."`
	Seed                  *uint64        `group:"shape" placeholder:"1" help:"Begins the random generator."`
}

// Help is what --help says beside the flags.
func (serveCmd) Help() string {
	return `The key pair is taken from OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET; without them one is made and printed. When the server answers it prints one line:

    ossemu ready endpoint=http://127.0.0.1:9000 admin=http://127.0.0.1:9001

Rates are bytes per second: 600MB is 600,000,000, 1GiB is 1,073,741,824; 0 is no bound.

Examples:

    # A bucket at full speed.
    ossemu serve --dir /tmp/oss --bucket data

    # Like object storage behind a 600 MB/s link, with an address to steer it.
    ossemu serve --dir /tmp/oss --bucket data --profile seed --download 600MB --admin 127.0.0.1:9001

    # Constant 20 ms to the first byte, nothing else.
    ossemu serve --dir /tmp/oss --bucket data --get-first-byte 20ms --sigma 0

    # What the counters say; every tenth GET fails from now on.
    curl -s 127.0.0.1:9001/stats
    curl -s -X PUT 127.0.0.1:9001/faults -d '[{"operation":"GetObject","kind":"error","code":"ServiceUnavailable","every":10}]'

Nothing is flushed to disk: data survives the death of the process, not loss of power.`
}

// shape is the profile with the single flags over it.
func (c *serveCmd) shape() (ossemu.Shape, error) {
	s, err := shape.Profile(c.Profile)
	if err != nil {
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	set(&s.Get.Median, c.GetFirstByte)
	set(&s.Head.Median, c.HeadLatency)
	set(&s.Put.Median, c.PutLatency)
	set(&s.List.Median, c.ListLatency)
	set(&s.ListPerEntry, c.ListLatencyPerEntry)
	set(&s.Copy.Median, c.CopyLatency)
	set(&s.CopyRate, c.CopyRate)
	set(&s.Complete.Median, c.CompleteLatency)
	for _, l := range []*shape.Latency{&s.Get, &s.Head, &s.Put, &s.List, &s.Copy, &s.Complete} {
		set(&l.Sigma, c.Sigma)
		l.Floor = min(l.Floor, l.Median) // a floor of the profile must not undo a flag
	}
	set(&s.TailProbability, c.TailProbability)
	set(&s.DownloadPerConnection, c.DownloadPerConnection)
	set(&s.UploadPerConnection, c.UploadPerConnection)
	set(&s.Spread, c.Spread)
	set(&s.Download, c.Download)
	set(&s.Upload, c.Upload)
	set(&s.QPS, c.QPS)
	set(&s.RoundTrip, c.RTT)
	set(&s.Seed, c.Seed)
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	return s, nil
}

func set[T any](field, flag *T) {
	if flag != nil {
		*field = *flag
	}
}

// credentials reads --credentials-file. Secrets are not taken from the command
// line, which every user of the machine can read.
func (c *serveCmd) credentials() ([]ossemu.Credential, error) {
	if c.Credential == "" {
		return nil, nil
	}
	info, err := os.Stat(c.Credential)
	if err != nil {
		return nil, fmt.Errorf("--credentials-file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("--credentials-file: %q has mode %04o: others could read it; chmod it to 0600", c.Credential, mode)
	}
	text, err := os.ReadFile(c.Credential)
	if err != nil {
		return nil, fmt.Errorf("--credentials-file: %w", err)
	}
	var all []ossemu.Credential
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseCredential(line)
		if err != nil {
			return nil, fmt.Errorf("--credentials-file: %s:%d: %w", c.Credential, number, err)
		}
		all = append(all, k)
	}
	return all, nil
}

func parseCredential(line string) (k ossemu.Credential, err error) {
	f := strings.SplitN(line, ":", 4)
	if len(f) < 2 || f[0] == "" || f[1] == "" {
		return k, errors.New("want ID:SECRET[:TOKEN[:EXPIRES]]")
	}
	k = ossemu.Credential{AccessKeyID: f[0], AccessKeySecret: f[1]}
	if len(f) > 2 {
		k.SecurityToken = f[2]
	}
	if len(f) > 3 {
		if k.Expires, err = time.Parse(time.RFC3339, f[3]); err != nil {
			return k, fmt.Errorf("%q is not a time such as 2030-01-02T15:04:05Z", f[3])
		}
	}
	return k, nil
}

// checkAdmin refuses an address that others could reach.
func (c *serveCmd) checkAdmin() error {
	if c.Admin == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Admin)
	if err != nil {
		return fmt.Errorf("%w: --admin: %w", errUsage, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%w: --admin: %q can be reached by others, and there is no authentication; use a loopback address such as 127.0.0.1:9001", errUsage, c.Admin)
	}
	return nil
}

func (c *serveCmd) config() (ossemu.Config, error) {
	cfg := ossemu.Config{
		Dir: c.Dir, Buckets: c.Bucket, Region: c.Region, ServiceDomains: c.Domain, CNames: c.CName,
		Gzip: c.Gzip, S3Strict: c.S3Strict, CheapETags: c.CheapETags,
	}
	if err := c.checkAdmin(); err != nil {
		return cfg, err
	}
	if c.PathStyle == "deny" {
		cfg.PathStyle = ossemu.PathStyleDeny
	}
	limit, err := humanize.ParseBytes(c.CopyLimit)
	if err != nil || limit == 0 || limit > 1<<50 {
		return cfg, fmt.Errorf("%w: --copy-limit: %q is not a size such as 1GiB", errUsage, c.CopyLimit)
	}
	cfg.CopyLimit = int64(limit)
	if cfg.Shape, err = c.shape(); err != nil {
		return cfg, err
	}
	cfg.Credentials, err = c.credentials()
	return cfg, err
}
