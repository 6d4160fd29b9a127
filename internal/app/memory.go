package app

import (
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/podnas/podnas/internal/idle"
)

// memoryMax bounds what Go may take before it collects garbage more often, in bytes: below what docs/limits.md says of the
// whole process. A quarter of the control group's limit replaces it where that is more, as what the provisioner knows of a large
// cluster grows with it. The index of files comes on top, where it may have more than by default.
const memoryMax = 512 << 20

// DefaultIndexMemory is the default of Config.IndexMemory, in MiB.
const DefaultIndexMemory = 128

// tablesStep is by how much the tables of version 4.1 grow or shrink before the limit follows.
const tablesStep = 8 << 20

// limitMemory sets Go's soft limit of memory (idle.SetMemoryLimit). It is at most three quarters of what the process's
// control group may have, since the kernel's sockets and written data need some of that. indexMemory is --index-memory. The variable GOMEMLIMIT overrides it.
//
// It returns what is to be told how many bytes the tables of version 4.1 take, by one goroutine. The limit is higher by that:
// with full tables, and all calls that there may be, Go would otherwise collect garbage all the time.
func limitMemory(indexMemory int) (tables func(bytes int)) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func(int) {}
	}
	told := -tablesStep
	tables = func(bytes int) {
		if bytes-told >= tablesStep || told-bytes >= tablesStep {
			told = bytes
			idle.SetMemoryLimit(memoryLimit(indexMemory, bytes, memlimit.FromCgroup))
		}
	}
	tables(0)
	return tables
}

// memoryLimit is the limit in bytes. cgroup returns that of the control group, or an error if there is none.
func memoryLimit(indexMemory, tables int, cgroup func() (uint64, error)) int64 {
	inAddition := uint64(max(0, indexMemory-DefaultIndexMemory))<<20 + uint64(tables)
	all, err := cgroup()
	if err != nil {
		return int64(memoryMax + inAddition)
	}
	return int64(min(max(memoryMax, all/4)+inAddition, all/4*3))
}
