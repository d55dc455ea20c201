package mounter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxMessage bounds a request and an answer, in bytes.
const maxMessage = 64 << 10

// maxSaid bounds what an answer has of each stream of a command, in bytes: the end of it.
const maxSaid = 16 << 10

// Command is one of pailfs.
type Command struct {
	// Args are its arguments. None is a secret: the host sees them.
	Args []string `json:"args"`
	// Environ is its environment, without secrets as well.
	Environ []string `json:"environ"`
}

// Result is how a command ended.
type Result struct {
	// Code is its exit code; -1 if a signal ended it or it did not start.
	Code int `json:"code"`
	// Out and Complaint are the ends of what it wrote to its standard output and error.
	Out       []byte `json:"out"`
	Complaint []byte `json:"complaint"`
}

// message is what goes over the socket, one packet each way.
type message struct {
	Version int      `json:"version"`
	Command *Command `json:"command,omitempty"`
	Result  *Result  `json:"result,omitempty"`
	// Error says why there is no result.
	Error string `json:"error,omitempty"`
}

// version is of the messages. A driver and a mounter of different releases speak with each other.
const version = 1

// Run has the mounter that listens on socket run a command to its end, and gives it lock, if it is not nil. When ctx ends the
// command gets SIGTERM, and Run returns without waiting for it: the command holds the lock until it has ended.
func Run(ctx context.Context, socket string, c Command, lock *os.File) (Result, error) {
	var dialer net.Dialer
	dialed, err := dialer.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return Result{}, fmt.Errorf("reach the mounter of this node, which starts daemons: %w", err)
	}
	conn := dialed.(*net.UnixConn)
	defer func() { _ = conn.Close() }() // what was to be said was said
	request, err := json.Marshal(message{Version: version, Command: &c})
	if err != nil {
		return Result{}, err
	}
	var rights []byte
	if lock != nil {
		rights = unix.UnixRights(int(lock.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(request, rights, nil); err != nil {
		return Result{}, fmt.Errorf("ask the mounter: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buffer := make([]byte, maxMessage)
	n, err := conn.Read(buffer)
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	if err != nil {
		return Result{}, fmt.Errorf("hear of the mounter, which may have been ended: %w", err)
	}
	var answer message
	if err := json.Unmarshal(buffer[:n], &answer); err != nil {
		return Result{}, fmt.Errorf("read the mounter's answer: %w", err)
	}
	if answer.Result == nil {
		return Result{}, errors.New("the mounter: " + answer.Error)
	}
	return *answer.Result, nil
}
