package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/bench/reader"
)

// Peer is another program that mounts a bucket. Adding one takes a function that
// says how it is started.
type Peer struct {
	// Program is looked for on PATH.
	Program string
	// Options says for people which of its options were chosen, and why.
	Options string
	// command returns arguments, without the program, and environment of a mount in
	// the foreground.
	command func(m peerMount) (args, env []string, err error)
}

// peerMount is what a peer is told to mount.
type peerMount struct {
	// at is the mount point; cache and work are directories of the peer's own.
	at, cache, work string
	// bucket, prefix (without its last slash) and keys.
	endpoint, bucket, prefix, keyID, secret string
	// writes says that files are written.
	writes bool
}

var _ Driver = Peer{}

// Peers are the programs that are compared with pailfs, those that Debian has
// first.
func Peers() []Peer {
	return []Peer{
		{"s3fs", "use_cache, parallel_count=16, multipart_size=16, max_stat_cache_size=200000, enable_noobj_cache, SigV4, path style", s3fs},
		{"rclone", "mount --vfs-cache-mode full, --vfs-read-chunk-size 8M, --vfs-read-ahead 64M, --dir-cache-time 1h, --attr-timeout 1h where nothing is written, --vfs-write-back 0s, --s3-chunk-size 16M, --s3-upload-concurrency 16, path style", rclone},
		{"ossfs", "use_cache, parallel_count=16, multipart_size=16, max_stat_cache_size=200000", ossfs},
		{"ossfs2", "its defaults: no cache on disk, prefetch on", ossfs2},
		{"geesefs", "--memory-limit 1000, --max-parallel-parts 16, no cache on disk", geesefs},
		{"goofys", "its defaults: no cache", goofys},
	}
}

// Name implements [Driver].
func (d Peer) Name() string { return d.Program }

// Source implements [Driver].
func (Peer) Source() Source { return FromBucket }

// Installed reports whether the program is on PATH.
func (d Peer) Installed() bool {
	_, err := exec.LookPath(d.Program)
	return err == nil
}

// Version returns the first line of what the program says of itself.
func (d Peer) Version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, d.Program, "--version").CombinedOutput()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// Start implements [Driver].
func (d Peer) Start(ctx context.Context, p Place) (Session, error) {
	if !d.Installed() {
		return nil, fmt.Errorf("%s is not on PATH", d.Program)
	}
	at, cache, err := mountDirs(p)
	if err != nil {
		return nil, err
	}
	bucket := p.Server.Bucket()
	args, env, err := d.command(peerMount{
		at: at, cache: cache, work: p.Work, endpoint: bucket.Endpoint, bucket: bucket.Bucket,
		prefix: strings.TrimSuffix(p.Prefix, "/"), keyID: bucket.KeyID, secret: bucket.Secret, writes: p.Writes,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", d.Program, err)
	}
	// A proxy or another trust store of the user's is none of this server's.
	env = append(env, "no_proxy=*", "AWS_CA_BUNDLE=", "HOME="+p.Work)
	m, err := startMount(ctx, at, processConfig{
		name: d.Program, args: append([]string{d.Program}, args...), env: env, log: filepath.Join(p.Work, d.Program+".log"),
	})
	if err != nil {
		return nil, err
	}
	return &peerSession{m}, nil
}

type peerSession struct{ *mount }

var _ Session = (*peerSession)(nil)

func (s *peerSession) Aim(job *reader.Job) { s.aim(job) }
func (s *peerSession) Daemons() []int      { return s.daemons() }

// Settle has nothing to ask a peer: its cache is on disk when it has answered.
func (s *peerSession) Settle(context.Context, []string) error { return nil }

// Flush has nothing to say to a peer: whoever needs it in the bucket looks there.
func (s *peerSession) Flush(context.Context) error { return nil }

// Stop unmounts, and by force where the program holds on to its mount.
func (s *peerSession) Stop(ctx context.Context) error {
	if !s.process.running() {
		return errors.Join(s.process.died(), s.detach())
	}
	for end := time.Now().Add(longest); ; {
		err := unix.Unmount(s.at, 0)
		if err == nil || errors.Is(err, syscall.EINVAL) {
			return s.ended()
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("unmount %q: %w", s.at, err), s.detach(), s.process.stop(10*time.Second))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// passwordFile writes a key pair in the form that s3fs and ossfs read.
func (m peerMount) passwordFile(content string) (string, error) {
	path := filepath.Join(m.work, "passwd")
	return path, os.WriteFile(path, []byte(content), 0o600)
}

func s3fs(m peerMount) (args, env []string, err error) {
	passwords, err := m.passwordFile(m.keyID + ":" + m.secret + "\n")
	return []string{m.bucket + ":/" + m.prefix, m.at, "-f", "-o", strings.Join([]string{
		"url=" + m.endpoint, "use_path_request_style", "sigv4", "endpoint=us-east-1", "passwd_file=" + passwords,
		"use_cache=" + m.cache, "tmpdir=" + m.work, "parallel_count=16", "multipart_size=16", "max_stat_cache_size=200000",
		"enable_noobj_cache",
	}, ",")}, nil, err
}

func rclone(m peerMount) (args, env []string, err error) {
	args = []string{
		"mount", "peer:" + m.bucket + "/" + m.prefix, m.at, "--cache-dir", m.cache, "--vfs-cache-mode", "full",
		"--dir-cache-time", "1h", "--vfs-read-chunk-size", "8M", "--buffer-size", "32M", "--vfs-read-ahead", "64M",
		"--vfs-write-back", "0s", "--s3-chunk-size", "16M", "--s3-upload-concurrency", "16", "--transfers", "16", "--config", "",
	}
	if !m.writes {
		// Its documentation warns of corruption where files change.
		args = append(args, "--attr-timeout", "1h")
	}
	env = []string{
		"RCLONE_CONFIG_PEER_TYPE=s3", "RCLONE_CONFIG_PEER_PROVIDER=Other", "RCLONE_CONFIG_PEER_FORCE_PATH_STYLE=true",
		"RCLONE_CONFIG_PEER_ENDPOINT=" + m.endpoint, "RCLONE_CONFIG_PEER_REGION=us-east-1",
		"RCLONE_CONFIG_PEER_ACCESS_KEY_ID=" + m.keyID, "RCLONE_CONFIG_PEER_SECRET_ACCESS_KEY=" + m.secret,
	}
	return args, env, nil
}

func ossfs(m peerMount) (args, env []string, err error) {
	passwords, err := m.passwordFile(m.bucket + ":" + m.keyID + ":" + m.secret + "\n")
	return []string{m.bucket + ":/" + m.prefix, m.at, "-f", "-o", strings.Join([]string{
		"url=" + m.endpoint, "passwd_file=" + passwords, "use_cache=" + m.cache, "tmpdir=" + m.work,
		"parallel_count=16", "multipart_size=16", "max_stat_cache_size=200000",
	}, ",")}, nil, err
}

func ossfs2(m peerMount) (args, env []string, err error) {
	path := filepath.Join(m.work, "ossfs2.conf")
	err = os.WriteFile(path, []byte(strings.Join([]string{
		"--oss_endpoint=" + m.endpoint, "--oss_bucket=" + m.bucket, "--oss_bucket_prefix=" + m.prefix + "/",
		"--oss_access_key_id=" + m.keyID, "--oss_access_key_secret=" + m.secret, "",
	}, "\n")), 0o600)
	return []string{"mount", m.at, "-c", path, "-f"}, nil, err
}

func geesefs(m peerMount) (args, env []string, err error) {
	args = []string{"-f", "--endpoint", m.endpoint, "--memory-limit", "1000", "--max-parallel-parts", "16", m.bucket + ":" + m.prefix, m.at}
	return args, m.awsKeys(), nil
}

func goofys(m peerMount) (args, env []string, err error) {
	return []string{"-f", "--endpoint", m.endpoint, m.bucket + ":" + m.prefix, m.at}, m.awsKeys(), nil
}

// awsKeys is the environment in which programs made for S3 look for keys.
func (m peerMount) awsKeys() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + m.keyID, "AWS_SECRET_ACCESS_KEY=" + m.secret}
}
