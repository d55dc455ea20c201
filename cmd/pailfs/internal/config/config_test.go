package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// written stores text as a configuration file and returns its path.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pailfs.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flags returns the given flags as the command line would hand them over.
func flags(t *testing.T, given map[string]string) Flags {
	t.Helper()
	f := Flags{Values: &Config{}, Given: map[string]string{}}
	for _, s := range Settings() {
		text, ok := given[s.Name]
		if !ok {
			continue
		}
		if err := s.set(f.Values, text); err != nil {
			t.Fatal(err)
		}
		f.Given[s.Name] = "--" + s.Name
	}
	return f
}

func TestEveryDefaultIsValid(t *testing.T) {
	l, err := Load("", nil, Flags{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Settings() {
		if got := s.Text(&l.Config); got != s.Default {
			t.Errorf("%s prints as %q, its default is written %q", s.Name, got, s.Default)
		}
		if s.Help == "" || !strings.HasSuffix(s.Help, ".") || s.Group == "" {
			t.Errorf("%s has no proper description", s.Name)
		}
	}
}

func TestFlagWinsOverEnvOverFileOverDefault(t *testing.T) {
	path := written(t, "# sizes\ncache_dir: /file\ncache_size: 1GiB\nmemory: 1GiB\nmetadata_ttl: 1s\n")
	environ := []string{"PAILFS_CACHE_SIZE=2GiB", "PAILFS_MEMORY=2GiB", "HOME=/root", "PAILFS_SERVICE_HOST=10.0.0.1"}
	l, err := Load(path, environ, flags(t, map[string]string{"memory": "3GiB"}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range Settings() {
		switch s.Name {
		case "negative-ttl", "cache-dir", "metadata-ttl", "cache-size", "memory":
			got[s.Name] = s.Text(&l.Config) + " from " + l.Origin(s.Name).String()
		}
	}
	want := map[string]string{
		"negative-ttl": "5s from default",
		"cache-dir":    "/file from file " + path + ":2",
		"metadata-ttl": "1s from file " + path + ":5",
		"cache-size":   "2GiB from env PAILFS_CACHE_SIZE",
		"memory":       "3GiB from flag --memory",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values and origins (-want +got):\n%s", diff)
	}
}

func TestFalseFlagWinsOverTrueInFile(t *testing.T) {
	path := written(t, "read_only: true\n")
	l, err := Load(path, nil, flags(t, map[string]string{"read-only": "false"}))
	if err != nil {
		t.Fatal(err)
	}
	if l.ReadOnly {
		t.Error("--read-only=false did not win over read_only: true")
	}
}

func TestBadFilesAreRefusedWithTheirLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"misspelled key":  {"memory: 1GiB\ncach_size: 1GiB\n", `:2: unknown key "cach_size": did you mean cache_size?`},
		"flag's spelling": {"cache-size: 1GiB\n", `:1: unknown key "cache-size": did you mean cache_size?`},
		"foreign key":     {"zookeeper_quorum: 3\n", `:1: unknown key "zookeeper_quorum": remove it`},
		"key twice":       {"memory: 1GiB\n\nmemory: 2GiB\n", `:3: key "memory" is already set in line 1`},
		"list":            {"- memory\n", "not a list of `key: value` lines"},
		"nested":          {"cache:\n  dir: /x\n", `:1: unknown key "cache"`},
		"list as value":   {"memory: [1GiB]\n", `:1: key "memory" needs a single value`},
		"no value":        {"memory:\n", `:1: key "memory" needs a single value`},
		"two documents":   {"memory: 1GiB\n---\nmemory: 2GiB\n", "more than one YAML document"},
		"not YAML":        {"memory: 1GiB\n\t{]\n", "line"},
		"bad size":        {"\nmemory: 5G\n", `:2: memory: "5G" is not a size: write a number and a unit`},
		"bad boolean":     {"read_only: maybe\n", `:1: read_only: "maybe" is neither true nor false`},
		"bad choice":      {"passthrough: on\n", `:1: passthrough: "on" is unknown: `},
		"secret":          {"access_key_secret: hunter2\n", `unknown key "access_key_secret"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(written(t, c.text), nil, Flags{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error has more than one line: %q", err)
			}
		})
	}
}

func TestEmptyFileIsValid(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n{}\n"} {
		if _, err := Load(written(t, text), nil, Flags{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMisspelledVariableIsRefused(t *testing.T) {
	for wrong, right := range map[string]string{"PAILFS_READONLY": "PAILFS_READ_ONLY", "PAILFS_ENDPONIT": "PAILFS_ENDPOINT"} {
		_, err := Load("", []string{wrong + "=1"}, Flags{})
		if err == nil || !strings.Contains(err.Error(), wrong+" is not a setting: did you mean "+right+"?") {
			t.Errorf("got %v", err)
		}
	}
	// The nearest, and not the first that is near.
	if got := nearestVariable("PAILFS_GIDD", []string{"PAILFS_UID", "PAILFS_GID"}); got != "PAILFS_GID" {
		t.Errorf("nearest is %q", got)
	}
	if _, err := Load("", []string{"PAILFS_PORT_80_TCP_ADDR=10.0.0.1"}, Flags{}); err != nil {
		t.Errorf("a variable of somebody else was refused: %v", err)
	}
}

func TestValuesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		given map[string]string
		want  string
	}{
		"endpoint with path":         {map[string]string{"endpoint": "https://host/bucket"}, "--endpoint: \"https://host/bucket\" is not an address"},
		"endpoint with key":          {map[string]string{"endpoint": "https://id:secret@host"}, "--endpoint: an address must not hold a key"},
		"endpoint scheme":            {map[string]string{"endpoint": "ftp://host"}, "write http:// or https://"},
		"endpoint port":              {map[string]string{"endpoint": "http://host:99999"}, "port"},
		"region as endpoint":         {map[string]string{"region": "oss-cn-hangzhou"}, "write the region, cn-hangzhou"},
		"file of other credentials":  {map[string]string{"credentials-file": "/x"}, "set credentials to file"},
		"role of other credentials":  {map[string]string{"role-name": "x"}, "set credentials to ecs-ram-role"},
		"relative cache directory":   {map[string]string{"cache-dir": "ssd/cache"}, `--cache-dir: "ssd/cache" is relative`},
		"cache size without a cache": {map[string]string{"cache-size": "1GiB"}, "set cache-dir as well"},
		"tiny cache":                 {map[string]string{"cache-dir": "/x", "cache-size": "1MiB"}, "--cache-size: 1MiB is too small"},
		"tiny memory":                {map[string]string{"memory": "1KiB"}, "--memory: 1KiB is too small"},
		"immutable but writable":     {map[string]string{"immutable": "true"}, "set read-only as well"},
		"no-open on a mutable mount": {map[string]string{"no-open": "on"}, "set read-only and immutable as well"},
		"umask of everything":        {map[string]string{"umask": "777"}, "--umask: 777 takes away the owner's own right"},
		"reachable address":          {map[string]string{"http": "0.0.0.0:80"}, `--http: "0.0.0.0:80" can be reached from other machines`},
		"all addresses":              {map[string]string{"http": "[::]:80"}, "can be reached from other machines"},
		"address without port":       {map[string]string{"http": "127.0.0.1"}, "write a port or host:port"},
		"bad port":                   {map[string]string{"http": "127.0.0.1:http"}, "port"},
		"remote without address":     {map[string]string{"http-allow-remote": "true"}, "set http as well"},
		"required nothing":           {map[string]string{"http-required": "true"}, "set http as well"},
		"debug without address":      {map[string]string{"http-debug": "true"}, "set http as well"},
		"remote debug of nothing":    {map[string]string{"http": "9321", "http-allow-remote": "true", "http-debug-allow-remote": "true"}, "set http-debug and http-allow-remote"},
		"remote debug on loopback":   {map[string]string{"http": "9321", "http-debug": "true", "http-debug-allow-remote": "true"}, "set http-debug and http-allow-remote"},
		"names for nobody":           {map[string]string{"http": "9321", "http-hosts": "a"}, "set http-allow-remote"},
		"name with a port":           {map[string]string{"http": "9321", "http-allow-remote": "true", "http-hosts": "a,b:1"}, `"b:1" is not a name`},
		"relative audit":             {map[string]string{"audit": "x.audit"}, "neither syslog, journald nor the whole path"},
		"audit in the log":           {map[string]string{"audit": "/x", "log-file": "/x"}, "is the log-file, too"},
		"audit without opens":        {map[string]string{"audit": "syslog", "no-open": "on", "read-only": "true", "immutable": "true"}, "which no-open hides"},
		"nothing to be full":         {map[string]string{"audit-full": "block"}, "set audit as well"},
		"relative log":               {map[string]string{"log-file": "x.log"}, "is relative"},
		"no time to start":           {map[string]string{"start-timeout": "0s"}, "leaves no time"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("", nil, flags(t, c.given))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestRefusalNamesWhereTheValueCameFrom(t *testing.T) {
	_, err := Load("", []string{"PAILFS_MEMORY=1KiB"}, Flags{})
	if err == nil || !strings.Contains(err.Error(), "--memory (from env PAILFS_MEMORY): 1KiB is too small") {
		t.Errorf("got %v", err)
	}
}

// What can be written keeps attributes: programs such as rsync set them, and give up where
// they cannot.
func TestAttributesAreKeptWhereFilesAreWritten(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  Config
		want bool
	}{
		"can be written":           {Config{Attrs: "auto", CacheDir: "/ssd"}, true},
		"read-only":                {Config{Attrs: "auto", CacheDir: "/ssd", ReadOnly: true}, false},
		"frozen names":             {Config{Attrs: "auto", CacheDir: "/ssd", Manifest: ManifestFrozen}, false},
		"nowhere to keep a change": {Config{Attrs: "auto"}, false},
		"asked for on read-only":   {Config{Attrs: "oss", ReadOnly: true}, true},
		"refused though it can be": {Config{Attrs: "none", CacheDir: "/ssd"}, false},
	} {
		if got := test.cfg.KeepsAttrs(); got != test.want {
			t.Errorf("%s: kept %v, want %v", name, got, test.want)
		}
	}
}

func TestAttrsOSSSaysWhatIsMissing(t *testing.T) {
	f := Flags{Values: &Config{Attrs: "oss", Manifest: "frozen"}, Given: map[string]string{"attrs": "--attrs", "manifest": "--manifest"}}
	if _, err := Load("", nil, f); err == nil || !strings.Contains(err.Error(), `--attrs: oss asks the objects`) {
		t.Errorf("got %v", err)
	}
}

func TestListenAddress(t *testing.T) {
	for in, want := range map[string]string{
		"9321":           "127.0.0.1:9321",
		":9321":          "127.0.0.1:9321",
		"localhost:9321": "localhost:9321",
		"[::1]:9321":     "[::1]:9321",
		"10.0.0.1:9321":  "10.0.0.1:9321",
	} {
		if got := (&Config{HTTP: in}).ListenAddress(); got != want {
			t.Errorf("%s listens at %s, want %s", in, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]Size{
		"500GiB": 500 << 30, "500GB": 500e9, "1.5TiB": 3 << 39, "1 MiB": 1 << 20, "2PiB": 2 << 50, "auto": 0, "0.5KiB": 512,
	} {
		var s Size
		if err := s.UnmarshalText([]byte(in)); err != nil || s != want {
			t.Errorf("%q is %d with error %v, want %d", in, s, err, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%q prints as %q, which reads as %d with error %v", in, s, again, err)
		}
	}
	for _, in := range []string{"", "5", "5G", "GiB", "-5GiB", "-5", "1e3GiB", "0x1GiB", "infGiB", "nanMiB", "1.GiB", ".5GiB", "9999999PiB", "0GiB", "0", "+5GiB", "1GiB2", "1_0GiB"} {
		var s Size
		if err := s.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q was taken as %d", in, s)
		}
	}
}

func TestSecondsHaveThreeDigitsThatCount(t *testing.T) {
	for in, want := range map[float64]string{0: "0s", 1.23456e-5: "12µs", 0.00123456: "1.23ms", 1.23456: "1.23s", 60: "1m", 3661.2: "1h1m1s"} {
		if got := Seconds(in).String(); got != want {
			t.Errorf("%g is %q, want %q", in, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]string{"60s": "1m", "90s": "1m30s", "0s": "0s", "1h": "1h", "3600s": "1h", "10m": "10m", "500ms": "500ms", "1h30m": "1h30m"} {
		var d Duration
		if err := d.UnmarshalText([]byte(in)); err != nil || d.String() != want {
			t.Errorf("%q prints as %q with error %v, want %q", in, d, err, want)
		}
	}
	for _, in := range []string{"", "5", "-5s", "soon"} {
		if err := new(Duration).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
	if d := Duration(time.Minute); time.Duration(d) != time.Minute {
		t.Error("a Duration is not in nanoseconds")
	}
}

func TestIDsAndModes(t *testing.T) {
	for _, in := range []string{"", "-1", "4294967295", "root", "1.0"} {
		if err := new(ID).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("id %q was taken", in)
		}
	}
	for _, in := range []string{"", "8", "1000", "-1", "rwx"} {
		if err := new(Mode).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("umask %q was taken", in)
		}
	}
	if got := Self.Or(7); got != 7 {
		t.Errorf("self is %d, want 7", got)
	}
	if got := ID(0).Or(7); got != 0 {
		t.Errorf("0 is %d", got)
	}
}

func TestLocations(t *testing.T) {
	for in, want := range map[string]Location{
		"oss://bucket":      {"bucket", ""},
		"oss://bucket/":     {"bucket", ""},
		"oss://bucket/a":    {"bucket", "a/"},
		"oss://bucket/a/b/": {"bucket", "a/b/"},
		"oss://b-1/ä ?#%20": {"b-1", "ä ?#%20/"},
	} {
		var l Location
		if err := l.UnmarshalText([]byte(in)); err != nil || l != want {
			t.Errorf("%q is %+v with error %v, want %+v", in, l, err, want)
		}
	}
	for _, in := range []string{
		"bucket", "s3://bucket", "oss://", "oss:///a", "oss://ab", "oss://Bucket", "oss://-bucket", "oss://bucket-", "oss://buc_ket",
		"oss://bucket//a", "oss://bucket/a//b", "oss://bucket/a/../b", "oss://bucket/.", "oss://bucket/a\nb", "oss://bucket/\xff",
		"oss://bucket/" + strings.Repeat("a", 1023), "oss://" + strings.Repeat("b", 64),
	} {
		if err := new(Location).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"cache_dir", "cache_size", "memory", "uid"}
	for in, want := range map[string]string{"cache_siez": "cache_size", "memroy": "memory", "cachedir": "cache_dir", "quorum": "", "x": "", "mem": "memory", "cache": ""} {
		if got := Nearest(in, candidates); got != want {
			t.Errorf("%q is near %q, want %q", in, got, want)
		}
	}
}

// FuzzFile: whatever a file holds, it is read or refused on one line.
func FuzzFile(f *testing.F) {
	for _, s := range []string{"memory: 1GiB\n", "a: &x 1\nb: *x\n", "? [a]\n: b\n", "\t", "<<: {memory: 1GiB}", "!!int memory: 3", "{memory: 1GiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, nil, Flags{}); err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("error has more than one line: %q", err)
		}
	})
}
