package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// grace is how long requests in flight may take to end after SIGTERM.
const grace = 5 * time.Second

// Run serves until the context ends.
func (c *serveCmd) Run(s surroundings) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if c.Verbose {
		level = slog.LevelDebug
	}
	cfg.Logger = slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: level}))
	made, err := c.addKeyPair(&cfg, s.getenv)
	if err != nil {
		return err
	}
	// Listen first: an address in use is found before the directory is touched.
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Addr, err)
	}
	defer l.Close()
	var admin net.Listener
	if c.Admin != "" {
		if admin, err = net.Listen("tcp", c.Admin); err != nil {
			return fmt.Errorf("listen on %s: %w", c.Admin, err)
		}
		defer admin.Close()
	}
	server, err := ossemu.Open(cfg)
	if err != nil {
		return err
	}
	if made {
		k := cfg.Credentials[0]
		fmt.Fprintf(s.stdout, "OSS_ACCESS_KEY_ID=%s\nOSS_ACCESS_KEY_SECRET=%s\n", k.AccessKeyID, k.AccessKeySecret)
	}
	ready := "ossemu ready endpoint=http://" + l.Addr().String()
	if admin != nil {
		ready += " admin=http://" + admin.Addr().String()
	}
	fmt.Fprintln(s.stdout, ready)
	return serve(s.ctx, server, l, admin)
}

// serve runs the server on its listeners until ctx ends.
func serve(ctx context.Context, server *ossemu.Server, l, admin net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(l) })
	adminServer := &http.Server{Handler: server.Admin(), ReadHeaderTimeout: 10 * time.Second}
	if admin != nil {
		g.Go(func() error {
			if err := adminServer.Serve(admin); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve administration: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		return errors.Join(server.Shutdown(end), adminServer.Close())
	})
	return g.Wait()
}

// addKeyPair puts the key pair of the environment first, or a new one.
func (c *serveCmd) addKeyPair(cfg *ossemu.Config, getenv func(string) string) (made bool, err error) {
	k := ossemu.Credential{AccessKeyID: getenv("OSS_ACCESS_KEY_ID"), AccessKeySecret: getenv("OSS_ACCESS_KEY_SECRET")}
	switch {
	case k.AccessKeyID == "" && k.AccessKeySecret == "":
		made = true
		k.AccessKeyID, k.AccessKeySecret = "ossemu"+strings.ToLower(rand.Text()[:10]), rand.Text()
	case k.AccessKeyID == "" || k.AccessKeySecret == "":
		return false, fmt.Errorf("%w: set both OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or neither", errUsage)
	}
	cfg.Credentials = append([]ossemu.Credential{k}, cfg.Credentials...)
	return made, nil
}
