package space

import (
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// The extended attributes of users, xattr(7), and ACLs take space, too. On ext4 they are in the inode, or in one block of st_blocks. On
// XFS they can be many blocks of those, which must not be taken for what XFS allocates ahead of a file that grows. On btrfs and
// in memory they are not in st_blocks at all. So there the server adds up what the attributes of an inode have in
// them, when it looks at the inode first, and when a call has changed one.

// hiddenXattrs and hiddenEach are what attributes that are not in blocks cost: on btrfs they are items, which mkfs.btrfs has on
// the disk twice, and in memory the kernel rounds up to a power of two.
const (
	hiddenXattrs = 2
	hiddenEach   = 64
)

// ForXattr is what to reserve to set an attribute: its name and its value have so many bytes. a may be nil.
func (a *Account) ForXattr(bytes int) Amount {
	switch {
	case a == nil:
		return Amount{}
	case a.prices.PerName:
		return Amount{bytes: priceOfXattr(bytes)}
	}
	return Amount{bytes: roundUp(int64(bytes)) + nameRoom} // and a block for its name, and one for an index of names
}

func priceOfXattr(bytes int) int64 { return hiddenXattrs * (hiddenEach + int64(bytes)) }

// ChangedXattr settles the charge of an inode that is open as fd, with O_PATH or not, after an attribute was set or removed. c
// may be nil: then it does nothing.
func (c *Charge) ChangedXattr(fd int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.xattrsKnown = false
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil { // what can't be looked at stays as it was
		c.settleLocked(&st, false, inodeAt{fd: fd})
	}
}

// inodeAt is an inode that is open as fd, or has a name in that directory.
type inodeAt struct {
	fd   int
	name string
}

// xattrsLocked returns what the attributes of the inode cost beside its blocks. ahead is how much past its end the inode has
// in blocks that are not charged.
//
// +checklocks:c.mu
func (c *Charge) xattrsLocked(st *unix.Stat_t, ahead int64, at inodeAt) int64 {
	p := &c.account.prices
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR || !p.PerName && ahead == 0 {
		return 0
	}
	if !c.xattrsKnown {
		c.xattrs, c.xattrsKnown = at.xattrs(), true
	}
	if p.PerName {
		return c.xattrs
	}
	return min(c.xattrs, ahead)
}

// xattrs is the price of all attributes of users, and ACLs. Their sizes take the right to read the inode, and the caller may act as
// a client's user, so another goroutine asks for them.
func (i inodeAt) xattrs() (bytes int64) {
	path, list, size := disk.ProcPath(i.fd), unix.Listxattr, unix.Getxattr
	if i.name != "" {
		path, list, size = path+"/"+i.name, unix.Llistxattr, unix.Lgetxattr
	}
	n, err := list(path, nil)
	if n == 0 || err != nil {
		return 0
	}
	names := make([]byte, disk.XattrListMax)
	if n, err = list(path, names); err != nil {
		return 0
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		for name := range strings.SplitSeq(string(names[:n]), "\x00") {
			if !strings.HasPrefix(name, disk.XattrUser) && !strings.HasPrefix(name, disk.XattrACL) {
				continue
			}
			n, err := size(path, name, nil)
			if errors.Is(err, unix.ENODATA) {
				continue // removed meanwhile
			}
			bytes += priceOfXattr(len(name) + max(n, 0))
		}
	})
	asking.Wait()
	return bytes
}
