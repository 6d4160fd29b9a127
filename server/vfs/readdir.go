package vfs

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

const (
	// ListMax is how much is listed at once, in bytes, and listTime for how long at most, but for
	// what one system call takes: clients ask for 64 KiB, and go on where the list ends.
	ListMax  = 256 << 10
	listTime = 100 * time.Millisecond
	// yieldEvery is after how many entries others have their turn, some 100 µs: a list
	// takes as long as a hundred small calls.
	yieldEvery = 32
	// ListTail is the end of a list and eof, in bytes.
	ListTail = 4 + 4
)

// Listing is the result of a READDIR, to which entries are appended, as many as fit.
//
// The cookie verifier is always 0: a cookie is the kernel's own position, which
// stays right while the directory changes, and after a restart.
type Listing struct {
	Bytes []byte // the result so far
	Max   int    // how long it may become, with ListTail
	// DirMax bounds what dircount counts: names, inode numbers and cookies.
	DirMax int
	EOF    bool

	entries int
}

// Add makes b, which is Bytes and an entry, the result. It returns false if the entry does not fit,
// with ErrTooSmall if it is the first. That one may have more than DirMax, which clients give as a
// hint: RFC 1813 section 3.3.17, RFC 8881 section 18.23.3.
func (l *Listing) Add(b, name []byte) (fits bool, err error) {
	l.DirMax -= 8 + 4 + len(name) + 8
	switch {
	case len(b)+ListTail <= l.Max && (l.DirMax >= 0 || l.entries == 0):
		l.Bytes = b
		l.entries++
		return true, nil
	case l.entries == 0:
		return false, ErrTooSmall
	}
	return false, nil
}

// List lists a directory into l from a cookie on, 0: from its start. It reads size bytes of it at a time,
// and calls add for each entry, which is valid until add returns, until there are no more or more
// is false. It acts as the caller, also in add.
func (c *Call) List(dir *inode.File, l *Listing, cookie uint64, size int, add func(inode.Entry) (more bool, err error)) error {
	if err := c.blocks(dir); err != nil {
		return err
	}
	return c.AsCaller(func(u actas.Thread) error { return l.fill(u, dir, cookie, size, add) })
}

func (l *Listing) fill(u actas.Thread, dir *inode.File, cookie uint64, size int, add func(inode.Entry) (more bool, err error)) error {
	list, err := dir.List(u, cookie, min(size, 64<<10))
	if errors.Is(err, syscall.EINVAL) && cookie != 0 {
		return ErrBadCookie
	}
	if err != nil {
		return err
	}
	defer list.Close()
	began := time.Now()
	for n := 1; ; n++ {
		e, ok, err := list.Next()
		if err != nil {
			return err
		}
		if !ok {
			l.EOF = true
			return nil
		}
		if more, err := add(e); err != nil || !more {
			return err
		}
		if n%yieldEvery == 0 {
			if time.Since(began) > listTime && l.entries > 0 {
				return nil
			}
			runtime.Gosched()
		}
	}
}
