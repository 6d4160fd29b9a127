package gonfs

import (
	"os"
	"time"

	nfsfile "github.com/willscott/go-nfs/file"

	"github.com/podnas/podnas/server/disk"
)

// fileInfo has a file's attributes for the library.
type fileInfo struct {
	name string
	attr disk.Attr
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.attr.Size }
func (i *fileInfo) ModTime() time.Time { return i.attr.Mtime }
func (i *fileInfo) IsDir() bool        { return i.attr.IsDir() }

// Mode has the type in Go's format and, because the library sends the low bits
// unchanged, setuid, setgid and sticky in the kernel's.
func (i *fileInfo) Mode() os.FileMode {
	mode := os.FileMode(i.attr.Mode & 0o7777)
	switch i.attr.Mode >> 12 { // S_IFMT, inode(7)
	case 0o01:
		mode |= os.ModeNamedPipe
	case 0o02:
		mode |= os.ModeDevice | os.ModeCharDevice
	case 0o04:
		mode |= os.ModeDir
	case 0o06:
		mode |= os.ModeDevice
	case 0o12:
		mode |= os.ModeSymlink
	case 0o14:
		mode |= os.ModeSocket
	}
	return mode
}

// Sys returns what the library reads beside os.FileInfo.
func (i *fileInfo) Sys() any {
	return nfsfile.FileInfo{
		Nlink: i.attr.Nlink, UID: i.attr.UID, GID: i.attr.GID,
		Major: i.attr.Major, Minor: i.attr.Minor, Fileid: i.attr.Ino,
	}
}
