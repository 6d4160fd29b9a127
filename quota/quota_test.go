package quota

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// The kernel reads and writes these structures by their C layout.
func TestLayout(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"struct fs_disk_quota", unsafe.Sizeof(diskQuota{}), 112},
		{"fs_disk_quota.d_blk_hardlimit", unsafe.Offsetof(diskQuota{}.blocksHard), 8},
		{"fs_disk_quota.d_bcount", unsafe.Offsetof(diskQuota{}.blocks), 40},
		{"fs_disk_quota.d_icount", unsafe.Offsetof(diskQuota{}.inodes), 48},
		{"fs_disk_quota.d_rtb_hardlimit", unsafe.Offsetof(diskQuota{}.rtBlocksHard), 72},
		{"struct fs_quota_statv", unsafe.Sizeof(quotaState{}), 160},
		{"fs_quota_statv.qs_flags", unsafe.Offsetof(quotaState{}.flags), 2},
		{"struct fsxattr", unsafe.Sizeof(fileAttributes{}), 28},
		{"struct file_attr", unsafe.Sizeof(nodeAttributes{}), 24},
		{"file_attr.fa_projid", unsafe.Offsetof(nodeAttributes{}.project), 16},
		{"fsxattr.fsx_projid", unsafe.Offsetof(fileAttributes{}.project), 12},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}

func TestParseMode(t *testing.T) {
	for s, want := range map[string]Mode{"auto": Auto, "kernel": Kernel, "server": Server, "off": Off} {
		if m, err := ParseMode(s); err != nil || m != want {
			t.Errorf("ParseMode(%q) = %q, %v", s, m, err)
		}
	}
	if _, err := ParseMode("ext4"); err == nil || !strings.Contains(err.Error(), "auto, kernel, server or off") {
		t.Errorf("ParseMode(ext4): %v, want the modes that exist", err)
	}
}

// /proc has no quotas: what a user sees on a disk that can't.
func TestSelectUnsupported(t *testing.T) {
	for _, tt := range []struct {
		mode   Mode
		server bool
		says   []string
	}{
		{Auto, true, []string{"the server enforces sizes", "not on XFS or ext4"}},
		{Server, true, []string{"the server enforces sizes", "as requested"}},
		{Off, false, []string{"not enforced", "as requested"}},
	} {
		choice, err := Select(tt.mode, "/proc")
		if choice.Projects != nil || choice.Server != tt.server || err != nil {
			t.Errorf("%s: %+v, %v", tt.mode, choice, err)
		}
		for _, want := range tt.says {
			if !strings.Contains(choice.Reason, want) {
				t.Errorf("%s: its reason lacks %q: %s", tt.mode, want, choice.Reason)
			}
		}
	}
	_, err := Select(Kernel, "/proc")
	var unsupported *UnsupportedError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "prjquota") {
		t.Errorf("kernel: %v, want an UnsupportedError that names the mount option", err)
	}
}

func TestOpenMissing(t *testing.T) {
	if _, err := Open(t.TempDir() + "/missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want not exist", err)
	}
}

func TestDeviceOf(t *testing.T) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if device, err := deviceOf(f); err != nil || device != "proc" {
		t.Errorf("deviceOf(/proc) = %q, %v", device, err)
	}
}

// What commands get is documented, and scripts read it.
func TestUsageAsJSON(t *testing.T) {
	data, err := json.Marshal(Usage{Bytes: 1, Inodes: 2, Limit: Limit{Bytes: 3, Inodes: 4}, Partial: true})
	if want := `{"bytes":1,"files":2,"partial":true}`; err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
}
