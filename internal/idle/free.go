package idle

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropProgram takes the program's own code and constants out of the resident set, most of which only
// the start, or a busy time, has used. What is used again comes back from the kernel's cache of the
// file, some pages at a time.
func dropProgram() {
	const constant = "a constant of the program"
	for _, address := range []uintptr{reflect.ValueOf(dropProgram).Pointer(), uintptr(unsafe.Pointer(unsafe.StringData(constant)))} {
		smaps, err := os.Open("/proc/self/smaps")
		if err != nil {
			return // no /proc: it stays
		}
		if start, end, ok := pristine(smaps, address); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED) // or it stays
		}
		_ = smaps.Close() // only read
	}
}

// pristine finds the mapping of an address in the format of proc_pid_smaps(5). ok is false
// if the mapping can be written to, or something in it was: a debugger writes to code and a
// linker to constants, which madvise(2) would undo.
func pristine(smaps io.Reader, address uintptr) (start, end uintptr, ok bool) {
	found := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) < 2:
			return 0, 0, false
		case !strings.HasSuffix(fields[0], ":"): // START-END PERMS ..., of another mapping
			_, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end)
			found = err == nil && start <= address && address < end && strings.HasPrefix(fields[1], "r-")
		case found && fields[0] == "Anonymous:":
			return start, end, fields[1] == "0"
		}
	}
	return 0, 0, false
}

// processorTime is the time that the process has run, on all processors.
func processorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
