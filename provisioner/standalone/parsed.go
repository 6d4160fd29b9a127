package standalone

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

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
func (p *parsed[T]) parse(name string, parse func(*os.File) (T, error)) (T, error) {
	if known, ok := p.files[name]; ok {
		if info, err := os.Stat(name); err == nil {
			if now, ok := stampOf(info); ok && now == known.stamp {
				return known.says, nil
			}
		}
		delete(p.files, name)
	}
	var none T
	f, err := os.Open(name)
	if err != nil {
		return none, err
	}
	defer f.Close()
	info, err := f.Stat() // before it is read: a later change shows
	if err != nil {
		return none, err
	}
	says, err := parse(f)
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

// forget lets go of the files that are not there any more.
func (p *parsed[T]) forget(there func(name string) bool) {
	for name := range p.files {
		if !there(name) {
			delete(p.files, name)
		}
	}
}
