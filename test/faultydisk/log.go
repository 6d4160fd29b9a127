package faultydisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// LogEntry is one of the log that the device mapper's target "log-writes" keeps: a write that
// was on the disk by then whatever happened, a flush, or a mark. Linux
// Documentation/admin-guide/device-mapper/log-writes.rst has the format.
type LogEntry struct {
	Mark    string // empty: a write or a flush
	Flush   bool
	discard bool
	at      int64 // on the disk, in bytes
	size    int64
	data    int64 // in the log
}

const (
	logMagic       = 0x6a736677736872
	logFlush       = 1 << 0
	logDiscard     = 1 << 2
	logMark        = 1 << 3
	logEntryHeader = 32
)

// ReadLog reads the log that is on a device.
func ReadLog(log io.ReaderAt) ([]LogEntry, error) {
	super := make([]byte, 28)
	if _, err := log.ReadAt(super, 0); err != nil {
		return nil, err
	}
	order := binary.LittleEndian
	sector := int64(order.Uint32(super[24:]))
	if order.Uint64(super) != logMagic || order.Uint64(super[8:]) != 1 || sector < 512 || sector > 1<<16 {
		return nil, errors.New("no log of dm-log-writes")
	}
	var entries []LogEntry
	at := sector
	for range order.Uint64(super[16:]) {
		header := make([]byte, sector)
		if _, err := log.ReadAt(header, at); err != nil {
			return nil, fmt.Errorf("entry %d: %w", len(entries), err)
		}
		at += sector
		flags, length := order.Uint64(header[16:]), order.Uint64(header[24:])
		e := LogEntry{
			Flush: flags&logFlush != 0, discard: flags&logDiscard != 0,
			at: int64(order.Uint64(header)) * sector, size: int64(order.Uint64(header[8:])) * sector, data: at,
		}
		if e.at < 0 || e.size < 0 || e.size > 1<<32 || length > uint64(sector-logEntryHeader) {
			return nil, fmt.Errorf("entry %d is damaged", len(entries))
		}
		if flags&logMark != 0 {
			e.Mark = string(header[logEntryHeader : logEntryHeader+length])
		}
		if !e.discard {
			at += e.size
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Replay does to a disk what the entry says.
func (e LogEntry) Replay(log io.ReaderAt, disk *os.File) error {
	if e.discard {
		return unix.Fallocate(int(disk.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, e.at, e.size)
	}
	_, err := io.Copy(io.NewOffsetWriter(disk, e.at), io.NewSectionReader(log, e.data, e.size))
	return err
}
