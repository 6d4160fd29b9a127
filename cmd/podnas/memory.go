package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/podnas/podnas/server/stats"
)

const (
	// quietPeriod is how often it is looked whether there is little to do.
	quietPeriod = 30 * time.Second
	// quietCalls is how many calls in that time are little: probes, and nodes that
	// look whether the server is there.
	quietCalls = 1000
)

// quiet tells when a busy time is over.
type quiet struct {
	calls uint64 // at the last look
	over  bool   // told already
}

// now is true once each time that few calls were made since the last look. The start
// is a busy time.
func (q *quiet) now(calls uint64) bool {
	few := calls-q.calls < quietCalls
	told := q.over
	q.calls, q.over = calls, few
	return few && !told
}

// callsServed is how many calls were answered.
func callsServed(served *stats.Server) (n uint64) {
	for _, p := range served.Snapshot().Procedures {
		for _, s := range p.Statuses {
			n += s.Count
		}
	}
	return n
}

// giveBack gives the system back, after the start and after each busy time, the memory
// that only they needed. A disk's cache makes better use of it. It runs until ctx ends.
func giveBack(ctx context.Context, served *stats.Server, log *slog.Logger) {
	tick := time.NewTicker(quietPeriod)
	defer tick.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !q.now(callsServed(served)) {
			continue
		}
		debug.FreeOSMemory() // Go itself does so over minutes, and keeps a tenth more
		if err := unmapBinary(); err != nil {
			log.Debug("memory: give back the pages of the binary", "err", err)
		}
	}
}

// unmapBinary takes what is mapped of the executable out of the process's memory. What
// is used again comes back from the kernel's cache, page by page; but half of the binary
// is read once, when the packages of Kubernetes fill their tables at the start, and
// would stay for good: more than all else that an idle process has.
func unmapBinary() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var start, end uintptr // of the mapping that is being told of; 0: of another file, or it can be written
	var errs []error
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var from, to uintptr
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n == 3 {
			start, end = 0, 0
			if strings.HasSuffix(line, " "+exe) && !strings.Contains(rights, "w") {
				start, end = from, to
			}
			continue
		}
		var changed int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &changed); n == 1 && start != 0 && changed == 0 {
			// Only pages that are as in the file are dropped: those that the loader or a
			// debugger has changed would be lost.
			pages := unsafe.Slice(*(**byte)(unsafe.Pointer(&start)), end-start) // not Go's memory, so nothing moves it
			errs = append(errs, syscall.Madvise(pages, syscall.MADV_DONTNEED))
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}
