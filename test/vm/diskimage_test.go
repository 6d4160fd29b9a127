//go:build vm

package vm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// imageAppliance is an appliance with a disk image in the directory disk.
type imageAppliance struct {
	*appliance
	image string
}

func newImageAppliance(t *testing.T, disk, size string) *imageAppliance {
	t.Helper()
	nativeOnly(t, "the image is below what an engine sees")
	command(t, "modprobe", "loop") // a node has it
	root := t.TempDir()
	t.Cleanup(func() { // after podnas has ended
		for unix.Unmount(root, 0) == nil {
			t.Log("unmounted what a killed podnas left")
		}
	})
	a := &imageAppliance{
		appliance: newAppliance(t, settings{root: root, quota: "kernel"}),
		image:     filepath.Join(disk, "podnas.img"),
	}
	a.args = append(a.args, "--disk-image", "")
	a.size(size)
	return a
}

// size is the size that the next start is for.
func (a *imageAppliance) size(s string) { a.args[len(a.args)-1] = a.image + ",size=" + s }

// device is the loop device of the image; empty: none. It starts no program, see
// prepare.
func (a *imageAppliance) device() string {
	a.t.Helper()
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		a.t.Fatal(err)
	}
	for _, path := range paths {
		if file, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(file)) == a.image {
			return "/dev/" + strings.Split(path, "/")[3]
		}
	}
	return ""
}

// gone checks that nothing is left of the image but its file.
func (a *imageAppliance) gone() {
	a.t.Helper()
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(" "+a.root+" ")) {
		a.t.Errorf("%s is still mounted (%v)", a.root, err)
	}
	// The kernel lets the device go a moment after its last use.
	eventually(a.t, "the loop device is given back", func() bool { return a.device() == "" })
}

// onDisk is what the image takes of the disk below it.
func (a *imageAppliance) onDisk() int64 {
	a.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(a.image, &st); err != nil {
		a.t.Fatal(err)
	}
	return st.Blocks * 512
}

// xfsDir is an empty directory on the XFS.
func xfsDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(xfs, "disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskImage: an image is made, limits volumes, is unmounted at the end, grows,
// and survives a killed podnas and a dead file system, under a writer that never
// notices.
func TestDiskImage(t *testing.T) {
	a := newImageAppliance(t, xfsDir(t), "400Mi")
	a.start()
	t.Setenv("XFS_DEV", a.device())
	pv := a.volume("image", "64Mi")
	mnt := mount(t, pv)
	keep := data(1, 4<<20)
	mustWrite(t, filepath.Join(mnt, "keep"), keep)
	if limit, use := limitAndUse(t, project(t, a.dir(pv))); limit != 64<<20 || use < 4<<20 {
		t.Errorf("the volume's limit is %d, its use %d; want 64 MiB and 4 MiB at least", limit, use)
	}
	if err := write(filepath.Join(mnt, "big"), data(2, 80<<20)); !noSpace(err) {
		t.Errorf("80 MiB into a volume of 64 MiB: %v; want ENOSPC or EDQUOT", err)
	}
	if err := os.Remove(filepath.Join(mnt, "big")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(a.image); err != nil || info.Mode() != 0o600 {
		t.Errorf("the image has mode %v (%v), want 0600", info.Mode(), err)
	}

	log := startLog(t, filepath.Join(mnt, "log"))
	check := func(after string, want uint64) {
		t.Helper()
		log.grows(t, 20)
		if total, _ := size(t, a.root); total < want-want/5 || total > want {
			t.Errorf("after %s the disk has %d bytes, want about %d", after, total, want)
		}
		if again := a.provisioned("image"); again.Metadata.Name != pv.Metadata.Name {
			t.Errorf("after %s volume %s has become %s", after, pv.Metadata.Name, again.Metadata.Name)
		}
	}
	check("the start", 400<<20)

	a.size("800Mi")
	a.prepare()
	a.stop()
	a.start()
	check("growing", 800<<20)

	a.size("500Mi")
	a.prepare()
	a.kill()
	a.start()
	check("kill -9 and a smaller size", 800<<20)
	if !bytes.Contains(a.output(), []byte("larger than requested")) {
		t.Error("podnas did not say that the image stays as large as it is")
	}

	// The mount that is left is dead: it has to go, and the log be replayed.
	a.prepare()
	cutPower(t, a.root)
	a.kill()
	a.start()
	if err := log.end(t); err != nil && !errors.Is(err, unix.EIO) { // it may have met the dead disk
		t.Errorf("the writer: %v", err)
	}
	dropCaches(t)
	checkLog(t, filepath.Join(a.dir(pv), "log"), log.acked.Load())
	holds(t, filepath.Join(mnt, "keep"), keep)
	holds(t, filepath.Join(a.dir(pv), "keep"), keep)

	unmountNow(t, mnt)
	a.stop()
	a.gone()
}

// unmountNow unmounts before the test ends; the clean-up of mount then finds a
// mount again.
func unmountNow(t *testing.T, target string) {
	t.Helper()
	unmount(t, target)
	if err := unix.Mount("none", target, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
}

// TestDiskImagePowerCut: what fsync has answered for is in the image after the
// disk below has lost all that had not reached it.
func TestDiskImagePowerCut(t *testing.T) {
	disk, dev := loopXFS(t, "")
	a := newImageAppliance(t, disk, "320Mi")
	a.start()
	pv := a.volume("power", "64Mi")
	mnt := mount(t, pv)
	b := data(1, 10<<20)
	mustWrite(t, filepath.Join(mnt, "synced"), b)
	log := startLog(t, filepath.Join(mnt, "log"))
	log.grows(t, 50)

	a.prepare()
	acked := log.acked.Load()
	cutPower(t, disk)
	a.kill()
	if err := unix.Unmount(a.root, 0); err != nil {
		t.Fatal(err)
	}
	a.gone()
	if err := unix.Unmount(disk, 0); err != nil {
		t.Fatal(err)
	}
	mountDisk(t, dev, disk, "xfs", "")
	a.start()
	checkLog(t, filepath.Join(a.dir(pv), "log"), acked)
	if err := log.end(t); err != nil && !errors.Is(err, unix.EIO) {
		t.Errorf("the writer: %v", err)
	}
	dropCaches(t)
	holds(t, filepath.Join(mnt, "synced"), b)
	mustWrite(t, filepath.Join(mnt, "after"), b)
	unmountNow(t, mnt)
	a.stop()
	a.gone()
}

// asInAPod starts a command with mounts of its own and a /dev that lacks the loop
// devices that came later.
const asInAPod = `mount -t tmpfs dev /mnt && cp -a /dev/null /dev/urandom /dev/loop-control /mnt &&
	mount --move /mnt /dev && exec "$0" "$@"`

// TestDiskImageInAPod: where the mount goes with the process, the next one may come
// while it goes. Two at a time don't share an image.
func TestDiskImageInAPod(t *testing.T) {
	podnas := os.Getenv("PODNAS")
	a := newImageAppliance(t, xfsDir(t), "320Mi")
	t.Setenv("PODNAS", "unshare")
	a.args = append([]string{"--mount", "sh", "-c", asInAPod, podnas}, a.args...)
	a.start()
	pv := a.volume("pod", "64Mi")
	mnt := mount(t, pv)
	log := startLog(t, filepath.Join(mnt, "log"))
	log.grows(t, 20)

	second := podnasFails(t, podnas, t.TempDir(), a.args[len(a.args)-1])
	if !strings.Contains(second, "in use by another podnas") {
		t.Errorf("a second podnas with the image said:\n%s", second)
	}
	for range 3 {
		a.prepare()
		a.kill()
		a.start()
		log.grows(t, 20)
	}
	n := log.stop(t)
	dropCaches(t)
	checkLog(t, filepath.Join(mnt, "log"), n)
	unmountNow(t, mnt)
	a.kill()
	a.gone()
}

// podnasFails starts a podnas that is to refuse, and returns what it says.
func podnasFails(t *testing.T, podnas, root, image string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, podnas, "serve", "--standalone", "--claims", t.TempDir(),
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--root", root, "--disk-image", image).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("podnas did not refuse %s: %v", image, err)
	}
	return string(out)
}

// TestDiskImageMadeWhole: whenever podnas is killed while it makes an image, there
// is none, or a whole one.
func TestDiskImageMadeWhole(t *testing.T) {
	disk := xfsDir(t)
	a := newImageAppliance(t, disk, "320Mi")
	for _, after := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond, time.Second} {
		a.launch()
		time.Sleep(after)
		a.kill()
		entries, err := os.ReadDir(disk)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("killed after %v: %v", after, entries)
		for _, e := range entries {
			if e.Name() != filepath.Base(a.image) {
				t.Errorf("killed after %v, podnas left %s", after, e.Name())
			}
		}
	}
	a.start()
	a.stop()
	a.gone()
}

// TestDiskImageForeign: what podnas did not make is refused and left as it is.
func TestDiskImageForeign(t *testing.T) {
	nativeOnly(t, "the image is below what an engine sees")
	dir := xfsDir(t)
	file := func(name string, size int64) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := filepath.Join(dir, "text")
	mustWrite(t, text, data(1, 1<<20))
	other, ext4, cut := file("other", 300<<20), file("ext4", 32<<20), file("cut", 300<<20)
	command(t, "mkfs.xfs", "-q", "-L", "other", other)
	command(t, "mkfs.ext4", "-q", ext4)
	command(t, "mkfs.xfs", "-q", "-L", "podnas", cut)
	if err := os.Truncate(cut, 200<<20); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(text, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{text, "contains no XFS"},
		{ext4, "contains no XFS"},
		{file("empty", 0), "the file is empty"},
		{file("zeros", 320<<20), "contains no XFS"},
		{other, `label "other"`},
		{cut, "is truncated"},
		{link, "not a regular file"},
		{os.Getenv("XFS_DEV"), "not a regular file"},
	} {
		t.Run(filepath.Base(c.path), func(t *testing.T) {
			var before [sha256.Size]byte
			if c.path != os.Getenv("XFS_DEV") {
				before = sum(t, c.path)
			}
			said := podnasFails(t, os.Getenv("PODNAS"), t.TempDir(), c.path+",size=320Mi")
			if !strings.Contains(said, c.want) {
				t.Errorf("podnas said, without %q:\n%s", c.want, said)
			}
			if c.path != os.Getenv("XFS_DEV") && before != sum(t, c.path) {
				t.Error("the file has changed")
			}
			if out := command(t, "losetup", "--associated", c.path); out != "" {
				t.Errorf("left attached: %s", out)
			}
		})
	}
	t.Run("root in use", func(t *testing.T) {
		root := t.TempDir()
		mustWrite(t, filepath.Join(root, "f"), nil)
		said := podnasFails(t, os.Getenv("PODNAS"), root, filepath.Join(dir, "new.img")+",size=320Mi")
		if !strings.Contains(said, "would hide") {
			t.Errorf("podnas said:\n%s", said)
		}
	})
}

func sum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// TestDiskImageSpace: an image that promises more than the disk below has shows
// and takes what that can give, loses nothing when others fill it, and gives back
// what was removed.
func TestDiskImageSpace(t *testing.T) {
	disk, _ := loopDisk(t, "ext4", "")
	a := newImageAppliance(t, disk, "1Gi")
	a.start()
	pv := a.volume("space", "100Mi")
	mnt := mount(t, pv)
	free := func() uint64 {
		_, available := size(t, a.root)
		return available
	}
	_, below := size(t, disk)
	if free() > below-(64<<20) {
		t.Errorf("%d bytes are free in the image; the disk below has %d, of which 64 MiB are to be left", free(), below)
	}
	keep := data(1, 20<<20)
	mustWrite(t, filepath.Join(mnt, "keep"), keep)

	local := filepath.Join(a.dir(pv), "local")
	mustWrite(t, local, nil) // a full disk may not take a name any more

	// Others take what is left but for less than the margin.
	_, below = size(t, disk)
	filler := filepath.Join(disk, "filler")
	mustWrite(t, filler, data(2, int(below)-(40<<20)))
	eventually(t, "nothing is free in the image", func() bool { return free() == 0 })
	refuses(t, local)
	if err := write(filepath.Join(mnt, "more"), data(3, 64<<20)); !noSpace(err) {
		t.Errorf("64 MiB on the mount when the disk below is full: %v, want ENOSPC", err)
	}
	overwrite(t, filepath.Join(mnt, "keep"), keep)
	dropCaches(t)
	holds(t, filepath.Join(mnt, "keep"), keep)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is space again", func() bool { return free() > 60<<20 })
	mustWrite(t, filepath.Join(mnt, "more"), data(3, 40<<20))
	dropCaches(t)
	holds(t, filepath.Join(mnt, "more"), data(3, 40<<20))

	full := a.onDisk()
	for _, name := range []string{"more", "keep"} {
		if err := os.Remove(filepath.Join(mnt, name)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the disk below has its space back", func() bool { return a.onDisk() < full-(55<<20) })
	for _, want := range []string{"the backing disk is full", "has free space again"} {
		if !bytes.Contains(a.output(), []byte(want)) {
			t.Errorf("podnas did not say %q", want)
		}
	}
}

// refuses checks that a full disk says so when it is written to, and not when
// it is too late: what it took it keeps. The file is there and empty.
func refuses(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := data(4, 64<<20) // more than the margin and what XFS has set aside
	n, err := f.Write(b)
	if !noSpace(err) {
		t.Errorf("%d bytes written to a full disk, before any sync: %v, want ENOSPC", n, err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("%d bytes that a full disk took are lost: %v", n, err)
	}
	dropCaches(t)
	holds(t, name, b[:n])
	t.Logf("a full disk took %d of %d bytes", n, len(b))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}
