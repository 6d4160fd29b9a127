package idle

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

const smaps = `00400000-013b4000 r-xp 00000000 fe:00 10027105                           /usr/bin/podnas
Size:              16080 kB
Rss:               11488 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
013b4000-0239b000 r--p 00fb4000 fe:00 10027105                           /usr/bin/podnas
Size:              16284 kB
Anonymous:             4 kB
VmFlags: rd mr mw me
0239b000-02430000 rw-p 01f9b000 fe:00 10027105                           /usr/bin/podnas
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:          2048 kB
7fff0000-7fff1000 r--p 00000000 00:00 0                                  [vvar]
`

func TestPristine(t *testing.T) {
	for _, test := range []struct {
		name       string
		smaps      string
		address    uintptr
		start, end uintptr // 0: it is not
	}{
		{"code", smaps, 0x400000, 0x400000, 0x13b4000},
		{"its end", smaps, 0x13b3fff, 0x400000, 0x13b4000},
		{"written to", smaps, 0x13b4000, 0, 0},
		{"can be written to", smaps, 0x239b000, 0, 0},
		{"not told", smaps, 0x7fff0000, 0, 0},
		{"not mapped", smaps, 0x1000, 0, 0},
		{"cut", smaps[:60], 0x400000, 0, 0},
		{"a line too short", "400000-13b4000\n", 0x400000, 0, 0},
		{"no numbers", "start-end r-xp\nAnonymous: 0 kB\n", 0x400000, 0, 0},
		{"nothing", "", 0x400000, 0, 0},
	} {
		start, end, ok := pristine(strings.NewReader(test.smaps), test.address)
		if ok != (test.end != 0) || ok && (start != test.start || end != test.end) {
			t.Errorf("%s: %#x-%#x, %v", test.name, start, end, ok)
		}
	}
}

// Less of the program is in memory then, and it goes on.
func TestDropProgram(t *testing.T) {
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer smaps.Close()
	if _, _, ok := pristine(smaps, reflect.ValueOf(dropProgram).Pointer()); !ok {
		t.Error("somebody has written to the code of this binary, or it can't be found")
	}
	before := rssFile(t)
	dropProgram()
	if after := rssFile(t); after >= before {
		t.Errorf("%d KiB of files were in memory, and %d are still", before, after)
	}
}

// rssFile is how much of files is in the process's memory, in KiB.
func rssFile(t *testing.T) (n int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(status), "RssFile:")
	if !ok {
		t.Fatal("no RssFile in the status of the process")
	}
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
