package oss

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigIsRefusedNotRepaired(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := Config{Endpoint: "oss-cn-hangzhou.aliyuncs.com", Bucket: "my-bucket"}
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no endpoint":              {func(c *Config) { c.Endpoint = "" }, "endpoint is empty"},
		"blank endpoint":           {func(c *Config) { c.Endpoint = "  " }, "endpoint is empty"},
		"odd scheme":               {func(c *Config) { c.Endpoint = "ftp://host" }, "scheme"},
		"oss scheme":               {func(c *Config) { c.Endpoint = "oss://bucket/prefix" }, "scheme"},
		"path in the endpoint":     {func(c *Config) { c.Endpoint = "https://host/bucket" }, "must end behind the host"},
		"query in the endpoint":    {func(c *Config) { c.Endpoint = "https://host?x=y" }, "must end behind the host"},
		"password in the endpoint": {func(c *Config) { c.Endpoint = "https://id:hunter2@host" }, "user name or password"},
		"bucket in the endpoint":   {func(c *Config) { c.Endpoint = "my-bucket.oss-cn-hangzhou.aliyuncs.com" }, "begins with the bucket"},
		"no host":                  {func(c *Config) { c.Endpoint = "https://" }, "no host"},
		"no URL":                   {func(c *Config) { c.Endpoint = "https://a b" }, "not a host"},
		"no bucket":                {func(c *Config) { c.Bucket = "" }, "bucket"},
		"upper-case bucket":        {func(c *Config) { c.Bucket = "MyBucket" }, "bucket"},
		"bucket with prefix":       {func(c *Config) { c.Bucket = "my-bucket/prefix" }, "bucket"},
		"short bucket":             {func(c *Config) { c.Bucket = "ab" }, "bucket"},
		"region as location":       {func(c *Config) { c.Region = "oss-cn-hangzhou" }, "region"},
		"region as endpoint":       {func(c *Config) { c.Region = "cn-hangzhou.aliyuncs.com" }, "region"},
		"CNAME with path style":    {func(c *Config) { c.CNAME, c.PathStyle = true, true }, "CNAME"},
		"CNAME of an address":      {func(c *Config) { c.CNAME, c.Endpoint = true, "https://10.0.0.1" }, "CNAME"},
		"negative connections":     {func(c *Config) { c.MaxConnections = -1 }, "max connections"},
		"negative deadline":        {func(c *Config) { c.Deadlines.Demand = -1 }, "deadlines"},
		"too many hedges":          {func(c *Config) { c.HedgeShare = 0.9 }, "hedge share"},
		"odd proxy":                {func(c *Config) { c.Proxy = "proxy" }, "proxy"},
		"missing authorities":      {func(c *Config) { c.CAFile = "/nonexistent/ca.pem" }, "/nonexistent/ca.pem"},
		"authorities of no kind":   {func(c *Config) { c.CAFile = noPEM }, noPEM},
	} {
		cfg := good
		test.change(&cfg)
		c, err := Open(cfg, nil, nil, quietLog())
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error is %q, want one line that says %q", name, err, test.want)
		}
	}
}

func TestEndpointIsReadAsMeant(t *testing.T) {
	for text, want := range map[string]string{
		"oss-cn-hangzhou.aliyuncs.com":           "https://oss-cn-hangzhou.aliyuncs.com",
		"oss-cn-hangzhou.aliyuncs.com:8443":      "https://oss-cn-hangzhou.aliyuncs.com:8443",
		"http://127.0.0.1:9000":                  "http://127.0.0.1:9000",
		"http://127.0.0.1:9000/":                 "http://127.0.0.1:9000",
		" https://oss-cn-hangzhou.aliyuncs.com ": "https://oss-cn-hangzhou.aliyuncs.com",
		"127.0.0.1:9000":                         "https://127.0.0.1:9000",
		"http://[::1]:9000":                      "http://[::1]:9000",
	} {
		cfg := Config{Endpoint: text, Bucket: "my-bucket"}
		if u, err := cfg.validate(); err != nil || u.String() != want {
			t.Errorf("%q is read as %v, %v, want %s", text, u, err, want)
		}
	}
}
