//go:build vm

package vm_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imagePrograms are commands of qemu-img(1), which finds holes, allocates, makes holes, copies ranges and locks. Each runs in
// a folder with the file raw, an image of 8 MiB with holes, and the folder tree. What they print is compared, too.
var imagePrograms = []string{
	"qemu-img map --output=json -f raw raw",
	"qemu-img convert -f raw -O raw raw new && qemu-img compare -f raw -F raw raw new",
	"qemu-img convert -S 0 -f raw -O raw raw new && qemu-img compare -f raw -F raw raw new",
	"qemu-img convert -C -f raw -O raw raw new && qemu-img compare -f raw -F raw raw new",                      // copy_file_range(2)
	"qemu-img convert -t none -T none -f raw -O raw raw new && qemu-img compare -T none -f raw -F raw raw new", // O_DIRECT
	"qemu-img convert -o preallocation=falloc -f raw -O raw raw new && qemu-img compare -f raw -F raw raw new && " + allocated,
	"qemu-img convert -o preallocation=full -f raw -O raw raw new && qemu-img compare -f raw -F raw raw new && " + allocated,
	"qemu-img create -q -f raw -o preallocation=falloc new 8M && qemu-img convert -n -f raw -O raw raw new && qemu-img compare -f raw -F raw raw new",
	"qemu-img convert -f raw -O qcow2 raw new && qemu-img compare -f raw -F qcow2 raw new && qemu-img convert -f qcow2 -O raw new tree/raw && cmp raw tree/raw",
	"qemu-img convert -c -f raw -O qcow2 raw new && qemu-img compare -f raw -F qcow2 raw new",
	"qemu-img convert -o preallocation=metadata -f raw -O qcow2 raw new && qemu-img compare -f raw -F qcow2 raw new",
	"qemu-img convert -o preallocation=falloc -f raw -O qcow2 raw new && qemu-img compare -f raw -F qcow2 raw new && qemu-img check -q new",
	"qemu-img resize -q -f raw raw 16M && qemu-img resize -q -f raw --shrink raw 4M && qemu-img resize -q -f raw --preallocation=falloc raw 6M",
	"qemu-img convert -f raw -O qcow2 raw new && qemu-img snapshot -c one new && qemu-img snapshot -a one new && qemu-img check -q new && qemu-img compare -f raw -F qcow2 raw new && rm new", // which has the time
}

// allocated is whether new has all its blocks.
const allocated = `test "$(stat -c %b new)" -ge 16384`

// sameImages has a program do the same with images in both places.
func sameImages(t *testing.T, program string, p places) {
	defer p.remove(t)
	p.same(t, program, func(folder string) {
		f, err := os.Create(filepath.Join(folder, "raw"))
		if err != nil {
			t.Fatal(err)
		}
		err = f.Truncate(8 << 20)
		for at, n := range map[int64]int{0: 64 << 10, 3 << 20: 1 << 20, 8<<20 - 128<<10: 128 << 10} {
			_, writeErr := f.WriteAt(data(byte(n>>16), n), at)
			err = errors.Join(err, writeErr)
		}
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}, sumsBelow)
}

// sumsBelow describes what is in all files of a folder. A qcow2 has nothing that differs from one time to another.
func sumsBelow(t *testing.T, folder string) string {
	t.Helper()
	var b strings.Builder
	if err := filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		fmt.Fprintf(&b, "%s: %d bytes, %x\n", entry.Name(), len(content), sha256.Sum256(content))
		return err
	}); err != nil {
		t.Error(err)
	}
	return b.String()
}
