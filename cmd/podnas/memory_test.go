package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestQuiet(t *testing.T) {
	var q quiet
	for i, look := range []struct {
		calls uint64
		want  bool
	}{
		{50, true}, // the start is over
		{60, false},
		{60 + quietCalls, false}, // busy
		{1 << 20, false},
		{1<<20 + quietCalls - 1, true}, // over
		{1<<20 + quietCalls, false},
		{2 << 20, false},
		{2 << 20, true},
		{2 << 20, false},
	} {
		if got := q.now(look.calls); got != look.want {
			t.Errorf("look %d: %t, want %t", i, got, look.want)
		}
	}
}

// What is taken out of memory is less than before, and the program goes on.
func TestUnmapBinary(t *testing.T) {
	mapped := func() (kib int) {
		t.Helper()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if n, _ := fmt.Sscanf(line, "RssFile: %d kB", &kib); n == 1 {
				return kib
			}
		}
		t.Fatal("the kernel tells no RssFile")
		return 0
	}
	before := mapped()
	if err := unmapBinary(); err != nil {
		t.Fatal(err)
	}
	after := mapped()
	t.Logf("%d KiB of files were mapped, %d are", before, after)
	if after > before/2 {
		t.Errorf("%d KiB of files were mapped, and %d still are", before, after)
	}
	if out, _, err := podnas(t.Context(), "--help"); err != nil || !strings.Contains(out, "serve") {
		t.Errorf("printed %q, %v", out, err)
	}
}
