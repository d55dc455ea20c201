package config

// Config holds every setting. The tags say all there is to say about a setting:
//
//   - name is the flag; the key in the file is the name with underscores, and the
//     variable is PAILFS_ with the name in upper case and underscores.
//   - default is the value where nothing else is said, in the form a user writes.
//   - oneof lists the values that are allowed, if they can be listed.
//   - help is what the setting means, for --help and CONFIGURATION.md.
type Config struct {
	Endpoint        string `name:"endpoint" default:"" placeholder:"URL" group:"store" help:"Address of the object store, for example https://oss-cn-hangzhou-internal.aliyuncs.com. Without a scheme https is used. There is no default."`
	Region          string `name:"region" default:"" placeholder:"ID" group:"store" help:"Region of the bucket, for example cn-hangzhou. When it is set, requests are signed with version 4, else with version 1."`
	Credentials     string `name:"credentials" default:"env" placeholder:"KIND" group:"store" oneof:"env,file,sts,ecs-ram-role,oidc,default,anonymous" help:"Where the keys come from: env (OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and, if set, OSS_SESSION_TOKEN), file (a JSON file, see credentials-file), sts (as env, but the token is required), ecs-ram-role (the machine's role), oidc (RRSA in Kubernetes), default (the vendor's chain) or anonymous."`
	CredentialsFile string `name:"credentials-file" default:"" placeholder:"PATH" group:"store" help:"JSON file with AccessKeyId, AccessKeySecret and perhaps SecurityToken and Expiration, for credentials=file. Without it ~/.alibabacloud/credentials is read. Only its owner may be able to read it."`
	RoleName        string `name:"role-name" default:"" placeholder:"NAME" group:"store" help:"RAM role of the machine, for credentials=ecs-ram-role. Without it the machine is asked which role it has."`

	CacheDir  string `name:"cache-dir" default:"" placeholder:"PATH" group:"cache" help:"Directory of the SSD tier, an absolute path on a local disk. It is made if its parent exists; one that exists must belong to the user who mounts. One daemon owns it. Without it only memory is used as a cache."`
	CacheSize Size   `name:"cache-size" default:"auto" placeholder:"SIZE" group:"cache" help:"Most bytes that the SSD tier may hold, for example 500GiB. auto leaves a tenth of the file system free."`
	Memory    Size   `name:"memory" default:"auto" placeholder:"SIZE" group:"cache" help:"Most bytes of file content in memory: cached and in flight. auto is an eighth of the memory that this machine or control group has, at most 4GiB."`

	Prefetch    string   `name:"prefetch" default:"auto" placeholder:"WHAT" group:"cache" oneof:"auto,hints" help:"What is fetched before it is read. hints: what a loader or pailfs warm asks for. auto: also what is likely to come next, in directories that are read in order or of which many files are opened."`
	PolicyRead  Patterns `name:"policy-read" default:"" placeholder:"PATHS" group:"cache" help:"Paths that are kept when they were read, which is the rule, as exceptions to policy-never. Files, folders, or patterns with an asterisk, relative to the mount, separated by commas; of those that a path fits, the longest counts. In the file these three are a section: policy with read, warm and never as lists."`
	PolicyWarm  Patterns `name:"policy-warm" default:"" placeholder:"PATHS" group:"cache" help:"Files and folders that are brought into the cache when the mount begins, as far as it has room."`
	PolicyNever Patterns `name:"policy-never" default:"" placeholder:"PATHS" group:"cache" help:"Paths whose content is never kept: it does not come onto SSD, and leaves memory when the file is closed."`

	PolicyThrough Patterns `name:"policy-through" default:"" placeholder:"PATHS" group:"write" help:"Paths of which close and fsync return when the object store has them, whatever write says. Written as policy-read is; in the file it is the list through in the section policy."`
	PolicyBack    Patterns `name:"policy-back" default:"" placeholder:"PATHS" group:"write" help:"Paths of which close and fsync return when they are safe on the local disk, whatever write says; of the patterns of policy-through and policy-back that a path fits, the longest counts. In the file it is the list back in the section policy."`

	Write             string   `name:"write" default:"back" placeholder:"WHEN" group:"write" oneof:"back,through" help:"When close and fsync return. back: when what was written is safe on the local disk, and it is uploaded behind. through: when the object store has it."`
	StagingSize       Size     `name:"staging-size" default:"auto" placeholder:"SIZE" group:"write" help:"Most bytes of what was written that may wait in cache-dir for their upload, for example 100GiB. Beyond it writers wait, and get ENOSPC at last. auto is what the disk has."`
	DrainTimeout      Duration `name:"drain-timeout" default:"5m" placeholder:"TIME" group:"write" help:"How long the daemon goes on uploading when it was told to stop. What is left then stays in cache-dir for the next mount, and the daemon ends with an error that lists it."`
	SpotNotice        string   `name:"spot-notice" default:"off" placeholder:"WHERE" group:"write" help:"Where to ask whether this machine is about to be taken back. ecs: the metadata service of an ECS spot instance, which tells some five minutes ahead. An address such as http://127.0.0.1:8000 is asked in its place. Then, as on SIGUSR1 and with pailfs drain, prefetching stops, uploads get all the bandwidth, and the log, the status and the metrics say what is safe. off asks nobody."`
	UploadBandwidth   Size     `name:"upload-bandwidth" default:"auto" placeholder:"SIZE" group:"write" help:"Most bytes a second that are uploaded, for example 200MiB; draining takes all there is. auto sets no limit."`
	UploadPace        string   `name:"upload-pace" default:"yield" placeholder:"HOW" group:"write" oneof:"yield,none" help:"Whether uploads leave the machine to programs that write fast. yield: they wait, for 15 seconds at first and for half of the time later, so that a checkpoint does not stop the training for longer than the disk does. none: they begin while a file is being written, and it is in the object store soonest."`
	DownloadBandwidth Size     `name:"download-bandwidth" default:"auto" placeholder:"SIZE" group:"write" help:"Most bytes a second that are fetched from the object store, for example 1GiB. auto sets no limit."`

	ReadOnly    bool     `name:"read-only" default:"false" group:"mount" help:"Refuse to write through this mount. Without cache-dir there is nowhere to keep what is written, and a mount is read-only in any case."`
	Immutable   bool     `name:"immutable" default:"false" group:"mount" help:"Promise that nothing under the prefix changes while it is mounted: names and attributes are kept for ever. Needs read-only."`
	Attrs       string   `name:"attrs" default:"auto" placeholder:"KIND" group:"mount" oneof:"auto,none,oss" help:"Where modes, owners and times of files are kept. none: nothing is asked; every file shows the modes that uid, gid and umask give, and a change of them is refused. oss: as x-oss-meta-mode, -uid, -gid, -mtime and -xattr (the user. extended attributes of files) of the object, as ossfs writes them, which also shows the symbolic links of ossfs; it costs one request for each version of an object, when it is looked up first, and cache-dir remembers the answer. auto: oss on a mount that can be written, unless it follows a manifest that was built without attributes, and none on another."`
	NoOpen      string   `name:"no-open" default:"auto" placeholder:"WHEN" group:"mount" oneof:"auto,on,off" help:"Whether the kernel may open files without asking the daemon, which makes small files several times faster and excludes passthrough. It needs read-only and immutable. auto decides by the mean size of all files in a manifest, else of the first hundred names, and status shows the choice."`
	Passthrough string   `name:"passthrough" default:"auto" placeholder:"WHEN" group:"mount" oneof:"auto,off" help:"Whether the kernel reads files that are whole in cache-dir without the daemon. auto uses it where the kernel and the file system of cache-dir can."`
	MetadataTTL Duration `name:"metadata-ttl" default:"1m" placeholder:"TIME" group:"mount" help:"How long a name, a size or a listing may be repeated without asking the object store again."`
	NegativeTTL Duration `name:"negative-ttl" default:"5s" placeholder:"TIME" group:"mount" help:"How long a name that did not exist may be taken as not existing."`
	AllowOther  bool     `name:"allow-other" default:"false" group:"mount" help:"Let other users than the one who mounts see the files. Users other than root need user_allow_other in /etc/fuse.conf."`
	NoExec      bool     `name:"noexec" default:"false" group:"mount" help:"Refuse to run programs from the mount, as the mount option of that name does. Needs root."`
	UID         ID       `name:"uid" default:"self" placeholder:"UID" group:"mount" help:"Owner that every file shows, as a number. self is the user who mounts."`
	GID         ID       `name:"gid" default:"self" placeholder:"GID" group:"mount" help:"Group that every file shows, as a number. self is the group of the user who mounts."`
	Umask       Mode     `name:"umask" default:"022" placeholder:"OCTAL" group:"mount" help:"Permission bits that are taken away from 0666 (files) and 0777 (directories)."`

	Manifest         string   `name:"manifest" default:"auto" placeholder:"MODE" group:"mount" help:"Where names come from. frozen: the newest published manifest is the truth for the life of the mount, which is read-only and asks for no name. follow: the newest published manifest, and newer ones as they are published. off: listings of the bucket. auto: follow where a manifest is published (frozen on an immutable mount), else off. Anything else is the whole path of a manifest file, which is shown as with frozen. A manifest that was built with attributes shows the modes, owners and times that it holds."`
	ManifestPoll     Duration `name:"manifest-poll" default:"30s" placeholder:"TIME" group:"mount" help:"How often the bucket is asked for a newer manifest with follow, which takes one request."`
	ManifestFallback bool     `name:"manifest-fallback" default:"false" group:"mount" help:"Mount as with manifest=off, with a warning, where a manifest is damaged or of a newer version. Without it such a mount is refused."`

	HTTP            string   `name:"http" default:"" placeholder:"ADDR" group:"daemon" help:"Serve /metrics, /healthz and /debug/pprof at this address, for example 9321 or 127.0.0.1:9321. A port alone means 127.0.0.1. Without it nothing is served."`
	HTTPAllowRemote bool     `name:"http-allow-remote" default:"false" group:"daemon" help:"Allow an address in http that other machines can reach. Anyone who reaches it can read names, metrics and profiles."`
	LogLevel        string   `name:"log-level" default:"info" placeholder:"LEVEL" group:"daemon" oneof:"debug,info,warn,error" help:"Least important messages that are logged."`
	LogFormat       string   `name:"log-format" default:"text" placeholder:"FORMAT" group:"daemon" oneof:"text,json" help:"Form of a log line."`
	LogFile         string   `name:"log-file" default:"" placeholder:"PATH" group:"daemon" help:"Append the log, and the trace if the daemon crashes, to this file, which is opened again on SIGHUP. Without it a foreground mount logs to standard error and a detached one to syslog."`
	StartTimeout    Duration `name:"start-timeout" default:"30s" placeholder:"TIME" group:"daemon" help:"How long the object store may take to answer the first request before mounting is given up."`
}
