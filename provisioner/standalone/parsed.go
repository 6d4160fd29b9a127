package standalone

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/volume"
)

// fileMax bounds a file, in bytes. A list of thousands of claims, as kubectl prints it, is
// smaller.
const fileMax = 16 << 20

// settled is how old a change must be so that the next one gets a different time:
// file systems record times at the kernel's tick, some only at full seconds.
const settled = 2 * time.Second

// parsed caches parsed files. The folder is scanned once a second, and parsing
// hundreds of unchanged files each time would waste processor time and memory. The
// zero value is empty.
type parsed[T any] struct {
	files map[string]parsedFile[T]
}

type parsedFile[T any] struct {
	stamp stamp
	says  T
	err   error // why it can't be parsed
}

// stamp changes when a file does. It uses ctime, because mtime can be set by
// programs.
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

// youngerThan reports whether the file was changed less than d ago.
func (s stamp) youngerThan(d time.Duration) bool {
	age := time.Since(time.Unix(s.changed.Unix()))
	return age >= 0 && age < d // not if the clock was set back
}

// parse returns the parsed file, and parses it if it has changed. Later calls share
// the result, or the error of parsing. A file that can't be read has the zero stamp.
func (p *parsed[T]) parse(name string, parse func([]byte) (T, error)) (T, stamp, error) {
	if known, ok := p.files[name]; ok {
		if info, err := os.Stat(name); err == nil {
			if now, ok := stampOf(info); ok && now == known.stamp {
				return known.says, now, known.err
			}
		}
		delete(p.files, name)
	}
	var none T
	data, info, err := read(name)
	if err != nil {
		return none, stamp{}, err
	}
	says, err := parse(data)
	now, ok := stampOf(info)
	if ok && time.Since(time.Unix(now.changed.Unix())) > settled {
		if p.files == nil {
			p.files = map[string]parsedFile[T]{}
		}
		p.files[name] = parsedFile[T]{now, says, err}
	}
	return says, now, err
}

// errIrregular is the error of a fifo, a socket, a device or a directory.
var errIrregular = errors.New("not a regular file")

// read returns the contents of a regular file, and its attributes before reading.
// Opening a fifo waits for a writer, and opening a device may do anything, so read
// checks the type first, and opens with O_NONBLOCK in case the file was replaced
// since. It follows symbolic links: the files of a mounted ConfigMap are links.
func read(name string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, fmt.Errorf("a folder, %w: container engines make one where the source of a mount is missing", errIrregular)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errIrregular
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // before reading, so that a later change is seen
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errIrregular
	}
	var data []byte
	if info.Size() <= fileMax {
		data, err = io.ReadAll(io.LimitReader(f, fileMax+1))
	}
	if err == nil && max(info.Size(), int64(len(data))) > fileMax {
		err = fmt.Errorf("larger than %s: split it into several files", volume.FormatSize(fileMax))
	}
	return data, info, err
}

// forget removes files that no longer exist.
func (p *parsed[T]) forget(there func(name string) bool) {
	for name := range p.files {
		if !there(name) {
			delete(p.files, name)
		}
	}
}
