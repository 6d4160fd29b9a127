//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The files that are read and written. Each page of them says where it is, and what
// wrote it.
const (
	readFile  = "read"
	writeFile = "write"
	pageSize  = 4 << 10
	madeSeed  = 1 // of what was there before the first turn
)

// stamp marks the pages of a block.
func stamp(block []byte, offset int64, seed uint64) {
	for i := 0; i < len(block); i += pageSize {
		binary.BigEndian.PutUint64(block[i:], uint64(offset)+uint64(i)+seed<<48)
	}
}

func checkStamps(block []byte, offset int64, seed uint64) error {
	for i := 0; i < len(block); i += pageSize {
		want := uint64(offset) + uint64(i) + seed<<48
		if got := binary.BigEndian.Uint64(block[i:]); got != want {
			return fmt.Errorf("wrong data at byte %d: %#x, not %#x", offset+int64(i), got, want)
		}
	}
	return nil
}

func makeFiles(dir string, size int64) error {
	for _, name := range []string{readFile, writeFile} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		block := make([]byte, 1<<20)
		for at := int64(0); at < size && err == nil; at += int64(len(block)) {
			stamp(block, at, madeSeed)
			_, err = f.Write(block)
		}
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// ioLoad reads or writes a file, as fio would.
type ioLoad struct {
	cfg    *config
	name   string
	block  int
	random bool
	write  bool
	direct bool // past the client's cache, as fio --direct=1: each block is a call
	jobs   int  // at a time
	// syncEvery is after how many blocks a buffered writer syncs.
	syncEvery int
}

func ioLoads(cfg *config) []load {
	var all []load
	for _, l := range []ioLoad{
		{name: "read-4k-rand", block: 4 << 10, random: true, direct: true, jobs: 1},
		{name: "read-4k-seq", block: 4 << 10, direct: true, jobs: 1},
		{name: "read-4k-rand-8-jobs", block: 4 << 10, random: true, direct: true, jobs: 8},
		{name: "read-1m-rand", block: 1 << 20, random: true, direct: true, jobs: 1},
		{name: "read-1m-seq", block: 1 << 20, direct: true, jobs: 1},
		{name: "write-4k-rand", block: 4 << 10, random: true, write: true, direct: true, jobs: 1},
		{name: "write-4k-seq", block: 4 << 10, write: true, direct: true, jobs: 1},
		{name: "write-4k-rand-8-jobs", block: 4 << 10, random: true, write: true, direct: true, jobs: 8},
		{name: "write-1m-rand", block: 1 << 20, random: true, write: true, direct: true, jobs: 1},
		{name: "write-1m-seq", block: 1 << 20, write: true, direct: true, jobs: 1},
		{name: "read-seq-buffered", block: 1 << 20, jobs: 1},
		{name: "write-seq-buffered", block: 1 << 20, write: true, jobs: 1, syncEvery: int(cfg.fileSize >> 20)},
		{name: "write-4k-rand-buffered", block: 4 << 10, random: true, write: true, jobs: 1, syncEvery: 512},
	} {
		l.cfg = cfg
		unit := "4 KiB"
		if l.block == 1<<20 {
			unit = "MiB"
		}
		all = append(all, load{name: l.name, unit: unit, run: l.run})
	}
	return all
}

// run lets the jobs do the same, each with a file of its own open, until the time
// is over.
func (l *ioLoad) run(t *turn) (result, error) {
	var jobs []*ioJob
	defer func() {
		for _, j := range jobs {
			j.file.Close()
		}
	}()
	for i := range l.jobs {
		j, err := l.job(t, i)
		if err != nil {
			return result{}, err
		}
		jobs = append(jobs, j)
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() { j.err = j.until(begun.Add(l.cfg.duration)) })
	}
	wg.Wait()
	r := result{took: time.Since(begun)}
	var err error
	for _, j := range jobs {
		r.done += j.done
		err = errors.Join(err, j.err, j.verify(t))
	}
	return r, err
}

// ioJob is one of them. It has a part of the file to itself, so that who wrote a
// page last is known.
type ioJob struct {
	*ioLoad
	file        *os.File
	data        []byte
	places      *rand.Rand
	from, parts int64 // of the file: in blocks
	seed        uint64
	done        int
	last        int64 // the block it wrote last
	err         error
}

func (l *ioLoad) job(t *turn, n int) (*ioJob, error) {
	name, flags := readFile, os.O_RDONLY
	if l.write {
		name, flags = writeFile, os.O_RDWR
	}
	if l.direct {
		flags |= unix.O_DIRECT
	}
	f, err := os.OpenFile(filepath.Join(t.at, name), flags, 0)
	if err != nil {
		return nil, err
	}
	parts := l.cfg.fileSize / int64(l.block) / int64(l.jobs)
	seed := uint64(madeSeed)
	if l.write {
		seed = uint64(madeSeed + 1 + t.round)
	}
	return &ioJob{
		ioLoad: l,
		file:   f,
		data:   make([]byte, l.block),
		places: rand.New(rand.NewPCG(uint64(t.round), uint64(n))), // the same for all servers
		from:   parts * int64(n), parts: parts,
		seed: seed,
	}, nil
}

func (j *ioJob) until(end time.Time) error {
	for time.Now().Before(end) || j.syncEvery > 0 && j.done%j.syncEvery != 0 {
		n := int64(j.done) % j.parts
		if j.random {
			n = j.places.Int64N(j.parts)
		}
		if err := j.one((j.from + n) * int64(j.block)); err != nil {
			return err
		}
		j.done++
		switch {
		case j.syncEvery > 0 && j.done%j.syncEvery == 0:
			if err := j.file.Sync(); err != nil {
				return err
			}
		case !j.write && !j.direct && n == j.parts-1:
			// The next time it is to come from the server again.
			if err := unix.Fadvise(int(j.file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *ioJob) one(at int64) error {
	if j.write {
		j.last = at
		stamp(j.data, at, j.seed)
		_, err := j.file.WriteAt(j.data, at)
		return err
	}
	if n, err := j.file.ReadAt(j.data, at); n < len(j.data) {
		return fmt.Errorf("read %d bytes of %d at %d: %w", n, len(j.data), at, err)
	}
	return checkStamps(j.data, at, j.seed)
}

// verify looks for the last block written on the disk.
func (j *ioJob) verify(t *turn) error {
	if !j.write || j.done == 0 {
		return nil
	}
	f, err := os.Open(filepath.Join(t.local, writeFile))
	if err != nil {
		return err
	}
	defer f.Close()
	clear(j.data)
	if _, err := f.ReadAt(j.data, j.last); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := checkStamps(j.data, j.last, j.seed); err != nil {
		return fmt.Errorf("on the disk: %w", err)
	}
	return nil
}
