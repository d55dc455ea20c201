package fs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asyncIO reads or writes p at an offset of a descriptor, and waits for it.
type asyncIO interface {
	do(write bool, fd int, p []byte, off int64) (int, error)
	close() error
}

// offHeap returns n bytes outside the heap, which the kernel may fill behind our back and
// O_DIRECT takes.
func offHeap(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// aio is Linux's io_submit(2) and its family.
type aio struct {
	context uint64
	// shared has one control block, a pointer to it, and an event.
	shared []byte
}

// aioBlock is struct iocb, aioEvent struct io_event.
type (
	aioBlock struct {
		data          uint64
		key, rwFlags  uint32
		opcode        uint16
		priority      int16
		fd            uint32
		buf, n        uint64
		off           int64
		reserved      uint64
		flags, result uint32
	}
	aioEvent struct {
		data, object uint64
		res, res2    int64
	}
)

func newAIO() (asyncIO, error) {
	a := &aio{}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 8, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
		return nil, fmt.Errorf("io_setup: %w", errno)
	}
	var err error
	a.shared, err = offHeap(4096)
	return a, err
}

func (a *aio) do(write bool, fd int, p []byte, off int64) (int, error) {
	block := (*aioBlock)(unsafe.Pointer(&a.shared[0]))
	list := (*uintptr)(unsafe.Pointer(&a.shared[1024]))
	event := (*aioEvent)(unsafe.Pointer(&a.shared[2048]))
	*block = aioBlock{fd: uint32(fd), buf: uint64(uintptr(unsafe.Pointer(&p[0]))), n: uint64(len(p)), off: off}
	if write {
		block.opcode = 1
	}
	*list = uintptr(unsafe.Pointer(block))
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, uintptr(a.context), 1, uintptr(unsafe.Pointer(list))); errno != 0 {
		return 0, errno
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, uintptr(a.context), 1, 1, uintptr(unsafe.Pointer(event)), 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		case n == 1:
			return resultOf(event.res)
		}
	}
}

func (a *aio) close() error {
	_, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, uintptr(a.context), 0, 0)
	if errno != 0 {
		return errno
	}
	return unix.Munmap(a.shared)
}

// resultOf splits what an asynchronous call came to.
func resultOf(res int64) (int, error) {
	if res < 0 {
		return 0, syscall.Errno(-res)
	}
	return int(res), nil
}

// uring is an io_uring with room for one request at a time.
type uring struct {
	fd               int
	params           uringParams
	sq, cq, requests []byte
}

// uringParams is struct io_uring_params, uringRequest struct io_uring_sqe, uringEvent
// struct io_uring_cqe.
type (
	uringParams struct {
		sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
		reserved                                             [3]uint32
		sq                                                   struct {
			head, tail, mask, entries, flags, dropped, array, reserved uint32
			user                                                       uint64
		}
		cq struct {
			head, tail, mask, entries, overflow, events, flags, reserved uint32
			user                                                         uint64
		}
	}
	uringRequest struct {
		opcode, flags uint8
		priority      uint16
		fd            int32
		off, buf      uint64
		n, rwFlags    uint32
		data          uint64
		rest          [3]uint64
	}
	uringEvent struct {
		data  uint64
		res   int32
		flags uint32
	}
)

const (
	uringRead, uringWrite = 22, 23
	uringWait             = 1 // IORING_ENTER_GETEVENTS
	uringSQ               = 0
	uringCQ               = 0x8000000
	uringRequests         = 0x10000000
)

func newUring() (asyncIO, error) {
	u := &uring{}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&u.params)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	u.fd = int(fd)
	var errs [3]error
	share := func(size, at int, err *error) (p []byte) {
		p, *err = unix.Mmap(u.fd, int64(at), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		return p
	}
	u.sq = share(int(u.params.sq.array+u.params.sqEntries*4), uringSQ, &errs[0])
	u.cq = share(int(u.params.cq.events)+int(u.params.cqEntries)*int(unsafe.Sizeof(uringEvent{})), uringCQ, &errs[1])
	u.requests = share(int(u.params.sqEntries)*int(unsafe.Sizeof(uringRequest{})), uringRequests, &errs[2])
	return u, errors.Join(errs[:]...)
}

func (u *uring) do(write bool, fd int, p []byte, off int64) (int, error) {
	word := func(ring []byte, at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&ring[at])) }
	tail := atomic.LoadUint32(word(u.sq, u.params.sq.tail))
	slot := tail & *word(u.sq, u.params.sq.mask)
	r := (*uringRequest)(unsafe.Pointer(&u.requests[uintptr(slot)*unsafe.Sizeof(uringRequest{})]))
	*r = uringRequest{opcode: uringRead, fd: int32(fd), off: uint64(off), buf: uint64(uintptr(unsafe.Pointer(&p[0]))), n: uint32(len(p))}
	if write {
		r.opcode = uringWrite
	}
	*word(u.sq, u.params.sq.array+4*slot) = slot
	atomic.StoreUint32(word(u.sq, u.params.sq.tail), tail+1)
	for submit := uintptr(1); ; {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), submit, 1, uringWait, 0, 0)
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN:
		case errno != 0:
			return 0, errno
		default:
			submit -= min(submit, n)
		}
		head := word(u.cq, u.params.cq.head)
		if at := *head; at != atomic.LoadUint32(word(u.cq, u.params.cq.tail)) {
			slot := at & *word(u.cq, u.params.cq.mask)
			e := (*uringEvent)(unsafe.Pointer(&u.cq[uintptr(u.params.cq.events)+uintptr(slot)*unsafe.Sizeof(uringEvent{})]))
			res := e.res
			atomic.StoreUint32(head, at+1)
			return resultOf(int64(res))
		}
	}
}

func (u *uring) close() error {
	return errors.Join(unix.Munmap(u.sq), unix.Munmap(u.cq), unix.Munmap(u.requests), unix.Close(u.fd))
}
