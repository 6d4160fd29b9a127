package standalone

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// fileMax bounds a file, in bytes; etcd's own limit for an object.
const fileMax = 1536 << 10

// settled is how old a change must be for the next one to have another time: file
// systems note times no finer than the kernel's tick, some to the second.
const settled = 2 * time.Second

// parsed remembers what files say. The folder is looked at once a second, and parsing
// hundreds of files each time would keep a processor and the garbage collector at work
// for nothing. The zero value is empty.
type parsed[T any] struct {
	files map[string]parsedFile[T]
}

type parsedFile[T any] struct {
	stamp stamp
	says  T
}

// stamp changes when a file does. The time of its last change can't be set by hand,
// as that of its last write can.
type stamp struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
}

func stampOf(info fs.FileInfo) (stamp, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, false
	}
	return stamp{stat.Dev, stat.Ino, stat.Size, stat.Ctim}, true
}

// parse returns what a file says, by parsing it if it has changed. What is returned
// is shared with later calls. A file with an error is parsed again each time.
func (p *parsed[T]) parse(name string, parse func([]byte) (T, error)) (T, error) {
	if known, ok := p.files[name]; ok {
		if info, err := os.Stat(name); err == nil {
			if now, ok := stampOf(info); ok && now == known.stamp {
				return known.says, nil
			}
		}
		delete(p.files, name)
	}
	var none T
	data, info, err := read(name)
	if err != nil {
		return none, err
	}
	says, err := parse(data)
	if err != nil {
		return says, err
	}
	if now, ok := stampOf(info); ok && time.Since(time.Unix(now.changed.Unix())) > settled {
		if p.files == nil {
			p.files = map[string]parsedFile[T]{}
		}
		p.files[name] = parsedFile[T]{now, says}
	}
	return says, nil
}

// errIrregular is said of a fifo, a socket, a device or a directory.
var errIrregular = errors.New("not a regular file")

// read returns what is in a regular file, and what the kernel told of it before. To
// open a fifo waits for a writer, and a device may do anything, so the file is looked
// at first, and what has taken the file's place meanwhile is opened without waiting. A
// symbolic link is followed: the files of a mounted ConfigMap are links.
func read(name string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errIrregular
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // before it is read: a later change shows
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errIrregular
	}
	data, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err == nil && len(data) > fileMax {
		err = fmt.Errorf("larger than %d bytes", fileMax)
	}
	return data, info, err
}

// forget lets go of the files that are not there any more.
func (p *parsed[T]) forget(there func(name string) bool) {
	for name := range p.files {
		if !there(name) {
			delete(p.files, name)
		}
	}
}
