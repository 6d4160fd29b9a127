//go:build attack

package attack_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// memoryLimit is the memory that the manifest lets podnas's container have, in bytes. Who
// needs more is killed by the kernel. What the kernel holds for a process counts too:
// sockets' buffers, inodes, file pages that are not written yet.
const memoryLimit = 2 << 30

// cgroup is a control group of the kernel's memory controller, version 1 or 2
// (Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst). Empty: there is none.
type cgroup string

// newCgroup makes one in the box's /sys/fs/cgroup, with the container's limit.
func newCgroup(t *testing.T) cgroup {
	t.Helper()
	const top = "/sys/fs/cgroup"
	_ = os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+memory"), 0) // version 2
	dir := filepath.Join(top, fmt.Sprint("podnas-attack-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no memory limit: %v", err)
		return ""
	}
	t.Cleanup(func() { must(t, os.Remove(dir)) })
	limit := []byte(strconv.Itoa(memoryLimit))
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), limit, 0); err == nil {
		return cgroup(dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), limit, 0); err != nil {
		t.Logf("no memory limit: %v", err)
		return ""
	}
	// Sockets' buffers count from when they have a limit, and have one of their own.
	must(t, os.WriteFile(filepath.Join(dir, "memory.kmem.tcp.limit_in_bytes"), limit, 0))
	return cgroup(dir)
}

func (g cgroup) add(pid int) error {
	if g == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(string(g), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// kernel is what the kernel holds for the group and can't drop, in bytes. Of what files
// have in memory that is what is not written yet.
func (g cgroup) kernel() int64 {
	if g == "" {
		return 0
	}
	var sum int64
	for _, name := range []string{"memory.kmem.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"} {
		if text, err := os.ReadFile(filepath.Join(string(g), name)); err == nil {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			sum += n
		}
	}
	stat, _ := os.ReadFile(filepath.Join(string(g), "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name {
		case "kernel", "sock", "file_dirty", "file_writeback", "dirty", "writeback":
			n, _ := strconv.ParseInt(value, 10, 64)
			sum += n
		}
	}
	return sum
}
