//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// version42Options mount a volume with version 4.2, which no PersistentVolume does yet.
func version42Options() []string { return []string{"nfsvers=4.2", "proto=tcp", "port=20490"} }

// rangePrograms are commands that share, allocate, and make holes, as programs have it. Each runs in a folder with the file
// data, 3 MiB and a bit, and sparse, which has data at its beginning, in the middle and at its end.
var rangePrograms = []string{
	"cp --reflink=always data new",
	"cp --reflink=auto data new",
	"cp --reflink=auto sparse new",
	"cp data new && cp --reflink=always sparse new", // over what is longer
	"cp --sparse=always data new",
	"cp --sparse=always sparse new",
	"cp --reflink=never --sparse=never sparse new",
	"cp --preserve=all sparse new",
	"head -c 300000 data >new && tail -c 100000 data | dd of=new bs=7k seek=50 conv=notrunc status=none",
	"fallocate -l 2M new",
	"fallocate -o 1M -l 2M sparse",
	"fallocate -p -o 4096 -l 1M data",
	"fallocate -p -o 100 -l 1000000 data",
	"fallocate -p -o 1M -l 64M data", // its end stays
	"fallocate -d sparse",
	"fallocate -n -l 8M new", // which NFS has not
	"fallocate --posix -l 2M new",
	"fallocate --posix -o 1M -l 8M sparse",
	"fallocate -z -o 1M -l 1M data",
	"truncate -s 10M data && truncate -s 1M data && truncate -s 3M data",
	"tar -Scf - sparse | (mkdir new.d && cd new.d && tar -Sxf - && mv sparse ../new)",
	"rsync --sparse sparse new",
	"rsync --sparse --inplace sparse new",
	"cp sparse new && rsync --sparse --inplace --no-whole-file --ignore-times data new", // it makes holes where data was
	"cp data new && rsync --inplace --no-whole-file --ignore-times sparse new",
}

// notByNFS are those that Linux's client does not do by NFS, the second before 6.17.
var notByNFS = []string{"fallocate -n -l 8M new", "fallocate -z -o 1M -l 1M data"}

// TestVersion42 mounts volumes with version 4.2, and has programs copy, share, allocate and make holes as they do on the
// server's own disk: on an XFS with project quotas, and on disks on which the server counts.
func TestVersion42(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	onDisks(t, []string{"XFS", "xfs", "btrfs", "ext4"}, []string{"XFS", "btrfs"}, func(t *testing.T, disk string, a *appliance, local string) {
		one, two := a.volume("one", "64Mi"), a.volume("two", "64Mi")
		mnt, other := mountWith(t, one, version42Options()), mountWith(t, two, version42Options())
		if got := mountedAs(t, mnt); !strings.Contains(got, ",vers=4.2,") {
			t.Fatalf("mounted as %s", got)
		}
		if out, code := run(t, "client", "list", "--root="+a.root); code != 0 || !strings.Contains(out, " 4.2 ") {
			t.Errorf("podnas client list: %d\n%s", code, out)
		}
		for _, program := range rangePrograms {
			t.Run(program, func(t *testing.T) { sameAsLocal(t, program, placesIn(mnt, a.dir(one), local)) })
		}
		t.Run("images", func(t *testing.T) {
			if disk != "XFS" {
				notInShortRun(t, "what programs do with images does not depend on the disk")
			}
			for _, program := range imagePrograms {
				t.Run(program, func(t *testing.T) { sameImages(t, program, placesIn(mnt, a.dir(one), local)) })
			}
		})
		t.Run("between volumes", func(t *testing.T) { betweenVolumes(t, mnt, other, local) })
		t.Run("copy_file_range", func(t *testing.T) { copiedRange(t, mnt) })
		t.Run("used", func(t *testing.T) { ranged(t, mnt, disk) })
		t.Run("full", func(t *testing.T) { allocatedInFull(t, mnt) })
	})
}

// sameAsLocal runs a program on a mount and on the local disk, and compares what becomes of it.
func sameAsLocal(t *testing.T, program string, p places) {
	var outcome [2]string
	defer p.remove(t)
	for i, folder := range []string{p.mnt, p.local} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(folder, "data"), data(1, 3<<20+1234))
		mustMakeSparse(t, filepath.Join(folder, "sparse"))
		cmd := exec.Command("sh", "-ec", program)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		outcome[i] = fmt.Sprintf("%v %s", err, out)
	}
	if slices.Contains(notByNFS, program) && strings.Contains(outcome[0], "not supported") {
		return
	}
	if strings.HasPrefix(outcome[0], "<nil>") != strings.HasPrefix(outcome[1], "<nil>") {
		t.Errorf("on the mount %s, on the disk %s", outcome[0], outcome[1])
	}
	dropCaches(t)
	for _, name := range []string{"data", "sparse", "new"} {
		onMount, inVolume, onLocal := mapOf(t, filepath.Join(p.mnt, name)), mapOf(t, filepath.Join(p.onDisk, name)), mapOf(t, filepath.Join(p.local, name))
		if onMount != inVolume {
			t.Errorf("%s: the mount has %s, the disk %s", name, onMount, inVolume)
		}
		want, err := os.ReadFile(filepath.Join(p.local, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		holds(t, filepath.Join(p.mnt, name), want)
		holds(t, filepath.Join(p.onDisk, name), want)
		if strings.HasPrefix(program, "fallocate -p") && onMount != onLocal {
			t.Errorf("%s: the mount has %s, the local disk %s", name, onMount, onLocal)
		}
	}
}

// mustMakeSparse makes a file with data at its beginning, in the middle, and at its end. Before that are whole pages, as the
// client writes.
func mustMakeSparse(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for at, n := range map[int64]int{0: 72 << 10, 3 << 20: 128 << 10, 6<<20 + 5: 1000} {
		_, writeErr := f.WriteAt(data(byte(n), n), at)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// mapOf is where a file has data, as lseek(2) says; "none" if there is no file.
func mapOf(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for at := int64(0); at < size; {
		begins, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err == nil {
			at, err = unix.Seek(int(f.Fd()), begins, unix.SEEK_HOLE)
		}
		if err != nil {
			t.Fatalf("lseek in %s: %v", name, err)
		}
		fmt.Fprintf(&b, "%d-%d ", begins, at)
	}
	for _, at := range []int64{size, size + 1, 1 << 62} {
		for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
			if _, err := unix.Seek(int(f.Fd()), at, whence); !errors.Is(err, unix.ENXIO) {
				t.Errorf("lseek in %s to %d of %d: %v", name, at, size, err)
			}
		}
	}
	return fmt.Sprintf("%sof %d", b.String(), size)
}

// betweenVolumes copies from one mount to another.
func betweenVolumes(t *testing.T, mnt, other, local string) {
	from, to := filepath.Join(mnt, "from"), filepath.Join(other, "to")
	mustWrite(t, from, data(5, 3<<20+1))
	command(t, "cp", "--reflink=auto", from, to)
	holds(t, to, data(5, 3<<20+1))
	mustWrite(t, filepath.Join(local, "from"), data(6, 10_000))
	command(t, "cp", "--reflink=auto", filepath.Join(local, "from"), to)
	holds(t, to, data(6, 10_000))
	out, err := exec.Command("cp", "--reflink=always", from, to).CombinedOutput()
	t.Logf("cp --reflink=always from one volume to another: %v %s", err, out)
	if err == nil {
		holds(t, to, data(5, 3<<20+1))
	}
}

// copiedRange copies what no disk can share, as it is not of whole blocks: short counts go on.
func copiedRange(t *testing.T, mnt string) {
	b := data(7, 20<<20)
	mustWrite(t, filepath.Join(mnt, "from"), b)
	from, to := open(t, filepath.Join(mnt, "from")), filepath.Join(mnt, "to")
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	for done := 100; done < len(b); {
		in, out := int64(done), int64(done-100)
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(f.Fd()), &out, len(b), 0)
		if err != nil || n == 0 {
			t.Fatalf("copy_file_range at %d: %d, %v", done, n, err)
		}
		done += n
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	holds(t, to, b[100:])
	if err := errors.Join(os.Remove(to), os.Remove(filepath.Join(mnt, "from"))); err != nil {
		t.Error(err)
	}
}

// ranged checks that the client has used what there is, by /proc/self/mountstats: a client that was told once that
// something is not supported does without it.
func ranged(t *testing.T, mnt, disk string) {
	stats, err := os.ReadFile("/proc/self/mountstats")
	if err != nil {
		t.Fatal(err)
	}
	_, of, _ := strings.Cut(string(stats), " mounted on "+mnt+" ")
	for _, op := range []string{"SEEK", "ALLOCATE", "DEALLOCATE", "CLONE", "COPY"} {
		var n, sent, timeouts, out, in, queue, rtt, execute, failed int
		_, line, found := bytes.Cut([]byte(of), []byte(" "+op+": "))
		if _, err := fmt.Sscan(string(line), &n, &sent, &timeouts, &out, &in, &queue, &rtt, &execute, &failed); err != nil || !found {
			t.Fatalf("no %s of %s in /proc/self/mountstats: %v", op, mnt, err)
		}
		t.Logf("%s: %d, of which %d failed", op, n, failed)
		switch {
		case disk == "ext4" && op == "CLONE":
			if n != 1 || failed != 1 {
				t.Errorf("CLONE of ext4: %d, of which %d failed; the client asks once", n, failed)
			}
		case n <= failed:
			t.Errorf("%s: %d, of which %d failed", op, n, failed)
		}
	}
}

// allocatedInFull writes to what was allocated, in a volume that is full.
func allocatedInFull(t *testing.T, mnt string) {
	name := filepath.Join(mnt, "allocated")
	command(t, "fallocate", "-l", "8M", name)
	if out, err := exec.Command("fallocate", "-l", "1G", filepath.Join(mnt, "too-large")).CombinedOutput(); err == nil {
		t.Errorf("more was allocated than there is: %s", out)
	}
	_ = os.Remove(filepath.Join(mnt, "too-large"))
	if err := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(mnt, "filler"), "bs=1M", "conv=fsync").Run(); err == nil {
		t.Error("the volume is never full")
	}
	b := data(9, 8<<20)
	command(t, "dd", "if=/dev/zero", "of="+name, "bs=1M", "count=8", "conv=notrunc,fsync")
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	holds(t, name, b)
}
