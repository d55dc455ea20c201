package reach

import (
	"errors"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// SettingsFlags are the flags of every command that needs the configuration.
type SettingsFlags struct {
	ConfigFile string        `name:"config" placeholder:"FILE" help:"YAML file of settings; PAILFS_CONFIG names one as well."`
	Settings   config.Config `embed:""`
}

// Load returns the configuration in force. The flags that were given are found in
// the parser's path, for a flag may be given with the value of its default.
func (f *SettingsFlags) Load(p command.Program, parsed *kong.Context) (*config.Loaded, error) {
	return f.loadOnly(p, parsed, nil)
}

// loadOnly is Load where only the named flags are settings, or all if names is nil.
func (f *SettingsFlags) loadOnly(p command.Program, parsed *kong.Context, names []string) (*config.Loaded, error) {
	given := map[string]string{}
	for _, step := range parsed.Path {
		if step.Flag != nil && (names == nil || slices.Contains(names, step.Flag.Name)) {
			given[step.Flag.Name] = "--" + step.Flag.Name
		}
	}
	path := f.ConfigFile
	if path == "" {
		path = p.Env(config.FileEnv)
	}
	l, err := config.Load(path, p.Environ, config.Flags{Values: &f.Settings, Given: given})
	if err != nil {
		return nil, command.Usage(err)
	}
	return l, nil
}

// StoreFlags are the settings of commands that speak to the object store and mount
// nothing. They are those of mount: what a test compares.
type StoreFlags struct {
	ConfigFile      string          `name:"config" placeholder:"FILE" help:"YAML file of settings; PAILFS_CONFIG names one as well."`
	Endpoint        string          `name:"endpoint" placeholder:"URL" group:"store" help:"Address of the object store, for example https://oss-cn-hangzhou-internal.aliyuncs.com."`
	AllowPlainHTTP  bool            `name:"allow-plain-http" group:"store" help:"Allow plain HTTP with the token of a session, as for mount."`
	Region          string          `name:"region" placeholder:"ID" group:"store" help:"Region of the bucket, for example cn-hangzhou."`
	Credentials     string          `name:"credentials" placeholder:"KIND" group:"store" oneof:"env,file,sts,ecs-ram-role,oidc,default,anonymous" help:"Where the keys come from, as for mount."`
	CredentialsFile string          `name:"credentials-file" placeholder:"PATH" group:"store" help:"JSON file of keys, for credentials=file."`
	RoleName        string          `name:"role-name" placeholder:"NAME" group:"store" help:"RAM role of the machine, for credentials=ecs-ram-role."`
	StartTimeout    config.Duration `name:"start-timeout" placeholder:"TIME" group:"store" help:"How long the object store may take to answer the first request."`
	LogLevel        string          `name:"log-level" placeholder:"LEVEL" group:"store" oneof:"debug,info,warn,error" help:"Least important messages that are written to standard error; warn if not said."`
}

// Load returns the configuration in force.
func (f *StoreFlags) Load(p command.Program, parsed *kong.Context) (*config.Loaded, error) {
	return f.LoadWith(p, parsed, func(*config.Config) {})
}

// LoadWith is Load with the settings of further flags, which set gives and names
// names.
func (f *StoreFlags) LoadWith(p command.Program, parsed *kong.Context, set func(s *config.Config), names ...string) (*config.Loaded, error) {
	all := SettingsFlags{ConfigFile: f.ConfigFile}
	s := &all.Settings
	s.Endpoint, s.Region, s.Credentials, s.CredentialsFile = f.Endpoint, f.Region, f.Credentials, f.CredentialsFile
	s.AllowPlainHTTP = f.AllowPlainHTTP
	s.RoleName, s.StartTimeout, s.LogLevel = f.RoleName, f.StartTimeout, f.LogLevel
	set(s)
	l, err := all.loadOnly(p, parsed, append(StoreFlagNames(), names...))
	if err != nil {
		return nil, err
	}
	if l.Endpoint == "" {
		return nil, command.Usage(errors.New("no endpoint is set: give --endpoint, for example https://oss-cn-hangzhou-internal.aliyuncs.com"))
	}
	return l, nil
}

// StoreFlagNames are the settings among the StoreFlags.
func StoreFlagNames() []string {
	return []string{"endpoint", "allow-plain-http", "region", "credentials", "credentials-file", "role-name", "start-timeout", "log-level"}
}
