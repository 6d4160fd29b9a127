package nfsbench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/podnas/podnas/nfs/nfs4"
)

// Version is a version of NFS. The zero value is NFS3.
type Version string

// The versions that the bench speaks.
const (
	NFS3  Version = "3"
	NFS41 Version = "4.1"
	NFS42 Version = "4.2" // the calls of 4.1, with this minor version
)

// ParseVersion parses a version.
func ParseVersion(s string) (Version, error) {
	switch v := Version(s); v {
	case NFS3, NFS41, NFS42:
		return v, nil
	}
	return "", fmt.Errorf("version %q of NFS: there are %s, %s and %s", s, NFS3, NFS41, NFS42)
}

func (v Version) String() string {
	if v == "" {
		return string(NFS3)
	}
	return string(v)
}

// minor returns the minor version, which is 0 for NFS3.
func (v Version) minor() uint32 {
	switch v {
	case NFS41:
		return 1
	case NFS42:
		return 2
	}
	return 0
}

// protocol is what a benchmark needs of a version before its workers can make calls.
type protocol interface {
	// root gets the handle of the export.
	root(context.Context, *lane) ([]byte, error)
	// join makes the benchmark's connection of an index usable. One of the same index
	// may have been there before.
	join(index int, c *conn) error
	// newCalls returns those of a worker on the connection of an index. Each worker of a
	// connection has another slot.
	newCalls(l *lane, index, slot int) (calls, error)
	// leave makes the server forget the bench.
	leave(*lane) error
}

func newProtocol(cfg *Config, t Target) protocol {
	if t.Version.minor() > 0 {
		return newProtocol4(cfg, t)
	}
	return &protocol3{cfg, t}
}

// calls are the calls of the loads, in one version of NFS. Handles in results are valid
// until the next call.
type calls interface {
	null() error
	// renew makes a call after a pause, which fails if the server has forgotten what
	// the worker had open.
	renew() error
	// limits are the most that READ and WRITE move, in bytes.
	limits(fh []byte) (rtmax, wtmax int, err error)
	// room is how many bytes are free for the caller.
	room(fh []byte) (int64, error)

	getattr(fh []byte) (attributes, error)
	// setattr sets mode and time of modification, like an archiver at the end of a file.
	setattr(fh []byte, mode uint32, mtime int64) error
	access(fh []byte, want uint32) (granted uint32, err error)
	lookup(dir, name []byte) (fh []byte, err error)
	// list reads the page after another; the zero page is before the first. It counts
	// the entries and, if visit isn't nil, calls it with each name. It does not return
	// the entries, because a slice of a large directory's entries costs more than
	// reading them.
	list(dir []byte, after page, visit func(name []byte, isDir bool)) (page, error)

	// touch makes a new file that does not stay open, create one that does.
	touch(dir, name []byte) (fh []byte, err error)
	create(dir, name []byte) (file, error)
	mkdir(dir, name []byte) (fh []byte, err error)
	remove(dir, name []byte) error
	rmdir(dir, name []byte) error
	rename(dir, from, to []byte) error

	open(dir, name []byte) (file, error)
	close(f *file) error
	// read reads up to n bytes at once, fewer if the server returns fewer.
	read(f *file, offset uint64, n int) (data []byte, eof bool, err error)
	// write writes up to n bytes of the pattern, fewer if the server accepts fewer.
	write(p *filler, f *file, seed, offset uint64, n int, stable bool) (written, error)
	commit(fh []byte) (verifier, error)
	// lock and unlock are for a byte that no other worker locks.
	lock(f *file) error
	unlock(f *file) error
}

// Bits of ACCESS, the same in both versions.
const (
	accessRead   = 0x1
	accessModify = 0x4
	accessExtend = 0x8
)

// attributes are what loads need of a file's attributes.
type attributes struct {
	regular bool
	size    uint64
}

// listingPage is how much a listing asks for at once, in bytes.
const listingPage = 64 << 10

// page is the state after a READDIRPLUS or READDIR.
type page struct {
	entries int // without . and ..
	cookie  uint64
	verf    verifier
	eof     bool
}

// verifier is an opaque value of the server: WRITE's changes when unstable writes are lost.
type verifier [8]byte

// given returns an error if ACCESS, whose error is err, did not grant all to a file's owner.
func given(got, want uint32, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("ACCESS: the owner of a file was given %#x of %#x", got, want)
	}
	return err
}

// file is a file that is open, in version 4.1 by a stateid. Its handle is valid until the
// worker opens or creates another.
type file struct {
	fh     []byte
	opened nfs4.Stateid
	locked nfs4.Stateid // zero: never yet
}

// written is the result of a WRITE.
type written struct {
	count int
	verf  verifier
}

// check checks the result of a WRITE of n bytes.
func (w *written) check(n int, stable, isStable bool) error {
	if w.count == 0 || w.count > n {
		return fmt.Errorf("WRITE of %d bytes: the server says that it wrote %d", n, w.count)
	}
	if stable && !isStable {
		return errors.New("WRITE: asked for FILE_SYNC, and the server has not synced")
	}
	return nil
}

// statusError is the error of a call that the server refused.
type statusError struct {
	call   string
	number uint32
	status fmt.Stringer
}

func (e *statusError) Error() string { return e.call + ": " + e.status.String() }

// Statuses that loads expect, the same in both versions.
const (
	statusPerm  = 1
	statusNoEnt = 2
	statusExist = 17
	statusIsDir = 21
	statusInval = 22
)

// hasStatus returns whether an error is one of these statuses.
func hasStatus(err error, statuses ...uint32) bool {
	refused := (*statusError)(nil)
	return errors.As(err, &refused) && slices.Contains(statuses, refused.number)
}
