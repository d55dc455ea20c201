package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// probed is what one probe found.
type probed struct {
	// reason is api.ReasonReady, or why the mount does not serve.
	reason, message string
}

// ready reports whether the mount serves.
func (p probed) ready() bool { return p.reason == api.ReasonReady }

// prober asks one mount again and again through a child process. A child that does not
// answer is killed; until the kernel lets it go, which may be when the daemon ends, there is
// no other one, so a stuck mount costs one process.
type prober struct {
	command  []string
	path     string
	patience time.Duration
	child    *child
}

// child is a process that answers as ServeStatfs does.
type child struct {
	cmd     *exec.Cmd
	in      interface{ Write([]byte) (int, error) }
	answers chan answer
	// gone is closed when the process has ended.
	gone chan struct{}
	// late says that it was killed for not answering.
	late bool
}

// start starts a child.
func (p *prober) start() (*child, error) {
	args := append(append([]string(nil), p.command...), p.path)
	c := &child{cmd: exec.Command(args[0], args[1:]...), answers: make(chan answer, 1), gone: make(chan struct{})}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in = in
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.gone)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var a answer
			if json.Unmarshal(lines.Bytes(), &a) != nil {
				break
			}
			c.answers <- a
		}
		_ = c.cmd.Process.Kill() // it has ended, or says what nobody understands
		_ = c.cmd.Wait()         // why it ended tells nothing of the mount
	}()
	return c, nil
}

// close ends the child without waiting for it.
func (p *prober) close() {
	if p.child != nil {
		_ = p.child.cmd.Process.Kill() // it may have ended
	}
}

// probe asks once. It returns within the prober's patience.
func (p *prober) probe(ctx context.Context) probed {
	if p.child != nil {
		select {
		case <-p.child.gone:
			p.child = nil
		default:
			if p.child.late {
				return p.stuck()
			}
		}
	}
	if p.child == nil {
		c, err := p.start()
		if err != nil {
			return probed{api.ReasonFailed, fmt.Sprintf("the prober of %s cannot be started: %v", p.path, err)}
		}
		p.child = c
	}
	if _, err := p.child.in.Write([]byte{'\n'}); err != nil {
		return probed{api.ReasonFailed, fmt.Sprintf("the prober of %s has ended: %v", p.path, err)}
	}
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	select {
	case a := <-p.child.answers:
		return p.judge(a)
	case <-p.child.gone:
		return probed{api.ReasonFailed, fmt.Sprintf("the prober of %s ended without an answer", p.path)}
	case <-timer.C:
	case <-ctx.Done():
	}
	p.child.late = true
	p.close()
	return p.stuck()
}

func (p *prober) stuck() probed {
	return probed{api.ReasonStuck, fmt.Sprintf("%s did not answer within %s: its daemon hangs; end it with pailfs umount --force %s", p.path, p.patience, p.path)}
}

// judge says what an answer means.
func (p *prober) judge(a answer) probed {
	switch errno := unix.Errno(a.Errno); {
	case errno == unix.ENOTCONN || errno == unix.ECONNABORTED:
		return probed{api.ReasonDead, fmt.Sprintf("the daemon of %s is dead; mounting again replaces it", p.path)}
	case errno == unix.ENOENT:
		return probed{api.ReasonNotMounted, p.path + " does not exist"}
	case errno != 0:
		return probed{api.ReasonFailed, fmt.Sprintf("statfs %s: %v", p.path, errno)}
	case a.Type != unix.FUSE_SUPER_MAGIC:
		return probed{api.ReasonNotMounted, "nothing is mounted at " + p.path}
	}
	return probed{api.ReasonReady, ""}
}
