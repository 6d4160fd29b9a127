//go:build vm

package vm_test

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSharedDiskRefused has --shared-disk refuse what is no such disk, and change nothing on it.
func TestSharedDiskRefused(t *testing.T) {
	nativeOnly(t, "the disk is below what an engine sees")
	dir := xfsDir(t)
	command(t, "modprobe", "loop")
	disk := func(name string, size int64, content map[int64]string) (path, device string) {
		path = filepath.Join(dir, name)
		mustWrite(t, path, nil)
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for at, text := range content {
			if _, err := f.WriteAt([]byte(text), at); err != nil {
				t.Fatal(err)
			}
		}
		device = strings.TrimSpace(command(t, "losetup", "--find", "--show", "--partscan", path))
		t.Cleanup(func() { command(t, "losetup", "--detach", device) })
		return path, device
	}
	const size = 400 << 20
	entry := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0, 0x83, 0, 0, 0}, 2048), size/512-4096)
	table := map[int64]string{446: string(entry), 510: "\x55\xaa"}
	for _, tt := range []struct {
		name    string
		size    int64
		content map[int64]string
		suffix  string // of the device
		want    string
	}{
		{"empty", size, nil, "", "SCSI-3 persistent reservations"},
		{"small", 256 << 20, nil, "", "an XFS needs at least"},
		{"text", size, map[int64]string{0: "text"}, "", "something that is not podnas's"},
		{"end", size, map[int64]string{size - 512: "EFI PART"}, "", "something that is not podnas's"},
		{"table", size, table, "", "something that is not podnas's"},
		{"partition", size, table, "p1", "is a partition"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, device := disk(tt.name, tt.size, tt.content)
			before := sum(t, path)
			root := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, os.Getenv("PODNAS"), "serve", "--standalone", "--shared-disk", device+tt.suffix, "--root", root,
				"--claims", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0").CombinedOutput()
			if err == nil || ctx.Err() != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v; podnas said, without %q:\n%s", err, tt.want, out)
			}
			if before != sum(t, path) {
				t.Error("the disk has changed")
			}
		})
	}
}
