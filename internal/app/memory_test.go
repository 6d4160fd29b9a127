package app

import (
	"errors"
	"testing"
)

const mebi = 1 << 20

func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		name        string
		indexMemory int
		tables      int
		cgroup      uint64 // 0: none
		want        int64
	}{
		{"no control group", 128, 0, 0, 512 * mebi},
		{"the manifest's limit", 128, 0, 2048 * mebi, 512 * mebi},
		{"a larger limit", 128, 0, 8192 * mebi, 2048 * mebi},
		{"full tables with a larger limit", 128, 260 * mebi, 8192 * mebi, 2308 * mebi},
		{"a small pod", 128, 0, 256 * mebi, 192 * mebi},
		{"a large index", 1024, 0, 4096 * mebi, (1024 + 896) * mebi},
		{"a large index in a small pod", 1024, 0, 1024 * mebi, 768 * mebi},
		{"a small index", 16, 0, 2048 * mebi, 512 * mebi},
		{"full tables", 128, 260 * mebi, 2048 * mebi, 772 * mebi},
		{"full tables in a small pod", 128, 260 * mebi, 800 * mebi, 600 * mebi},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := memoryLimit(tt.indexMemory, tt.tables, func() (uint64, error) {
				if tt.cgroup == 0 {
					return 0, errors.New("none")
				}
				return tt.cgroup, nil
			})
			if got != tt.want {
				t.Errorf("%d MiB, want %d", got/mebi, tt.want/mebi)
			}
		})
	}
}
