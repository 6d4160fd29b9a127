//go:build attack

package attack_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

var nameAttacks = []attack{
	{
		name:  "names that lead elsewhere",
		does:  "every call that takes a name, with '/', NUL, '.', '..', none, 255 to 4,096 bytes, invalid UTF-8 and mixtures of them",
		holds: "nothing outside of the volume changes, and no name becomes another",
		also:  kinds{gonfs, race},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			dir := a.mkdir(c, root, "dir")
			file := a.create(c, dir, "file", nfs3.Sattr{})
			before := a.outside("prey")
			names := []string{
				"", ".", "..", "/", "//", "a/b", "/etc/passwd", "../" + victimVolume, "..\x00", "\x00", "a\x00b", "./a", "a/", "/a", "../..", "../../.podnas",
				".podnas", "...", " ", "\n", "\xff\xfe", "\xc0\xae\xc0\xae", "\xe2\x80\xae", "a\\b", "%2e%2e", "~", "-rf", "COM1",
				strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("n", 1024), strings.Repeat("n", 4096), strings.Repeat("../", 80), strings.Repeat("\x00", 255),
			}
			for range 100 * a.factor {
				var b []byte
				for range 1 + a.rng.IntN(20) {
					b = append(b, "./\x00a\xff\\ \n"[a.rng.IntN(8)])
				}
				names = append(names, string(b))
			}
			taken := 0
			for _, name := range names {
				for kind, status := range a.tryName(c, dir, file, name) {
					if status != nfs3.OK {
						continue
					}
					taken++
					if name == "" || name == "." && kind != "LOOKUP" || name == ".." && kind != "LOOKUP" || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
						a.Errorf("%s of %q was taken", kind, name)
					}
				}
			}
			if after := a.outside("prey"); after != before {
				a.Errorf("what is outside of the volume has changed:\n%s\nwas\n%s", after, before)
			}
			up, err := c.Lookup(a.ctx, root, "..")
			if err == nil && up.Status == nfs3.OK && string(up.Object) != string(root) {
				a.Error("LOOKUP .. leads out of the volume")
			}
			a.note("%d names, %d calls that succeeded", len(names), taken)
		},
	},
	{
		name:  "symbolic links that lead elsewhere",
		does:  "links to the victim's volume, to podnas's own state and to the root, used as directories and files, while their names change between link and directory",
		holds: "nothing outside of the volume is read or changed",
		also:  kinds{gonfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			must(a, os.WriteFile(a.path(victimVolume, "secret"), []byte("the victim's secret"), 0o600))
			before := a.outside("prey")
			c, root := a.client("prey")
			for i, target := range []string{
				"..", "../" + victimVolume, "../../../../../etc", a.path(victimVolume), a.path(".podnas"), "/", "../.podnas/instance.json",
				"/proc/self/root", "/proc/self/fd/3", "loop-" + fmt.Sprint(7), "loop-8", "", strings.Repeat("x", 4095),
			} {
				name := fmt.Sprint("loop-", i)
				res, err := c.Symlink(a.ctx, root, name, target)
				if err != nil {
					a.Fatalf("SYMLINK to %q: %v", target, err)
				}
				if res.Status == nfs3.OK {
					a.useLink(c, root, name, res.Object)
				}
			}
			stop := time.Now().Add(a.window)
			swapped := make(chan int)
			go func() { // another client of the volume
				other, root, err := mountFrom(a.ctx, mallory(1), "prey")
				n := 0
				for ; err == nil && time.Now().Before(stop); n++ {
					_, err = other.Mkdir(a.ctx, root, "swap", mode(0o777))
					_, _ = other.Rmdir(a.ctx, root, "swap")
					_, _ = other.Symlink(a.ctx, root, "swap", "../"+victimVolume)
					_, _ = other.Remove(a.ctx, root, "swap")
				}
				if other != nil {
					other.Close()
				}
				swapped <- n
			}()
			for time.Now().Before(stop) {
				found, err := c.Lookup(a.ctx, root, "swap")
				if err != nil {
					a.Fatalf("LOOKUP: %v", err)
				}
				if found.Status == nfs3.OK {
					a.useLink(c, root, "swap", found.Object)
				}
			}
			a.note("%d swaps", <-swapped)
			if after := a.outside("prey"); after != before {
				a.Errorf("what is outside of the volume has changed:\n%s\nwas\n%s", after, before)
			}
		},
	},
}

// tryName makes every call that takes a name, and tells what each came to.
func (a *assault) tryName(c *nfstest.Client, dir, file nfs3.FH, name string) map[string]nfs3.Status {
	a.Helper()
	got := map[string]nfs3.Status{}
	// Names that the server can't even decode are an RPC error, which is a refusal.
	note := func(call string, status nfs3.Status, err error) {
		if err == nil {
			got[call] = status
		}
	}
	lookup, err := c.Lookup(a.ctx, dir, name)
	note("LOOKUP", lookup.Status, err)
	create, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(dir, name), Mode: nfs3.Guarded})
	note("CREATE", create.Status, err)
	rename, err := c.Rename(a.ctx, dir, name, dir, name+"2")
	note("RENAME from", rename.Status, err)
	_, _ = c.Rename(a.ctx, dir, name+"2", dir, "renamed") // whether it is there or not
	rename, err = c.Rename(a.ctx, dir, "renamed", dir, name)
	note("RENAME to", rename.Status, err)
	remove, err := c.Remove(a.ctx, dir, name)
	note("REMOVE", remove.Status, err)
	mkdir, err := c.Mkdir(a.ctx, dir, name, mode(0o755))
	note("MKDIR", mkdir.Status, err)
	rmdir, err := c.Rmdir(a.ctx, dir, name)
	note("RMDIR", rmdir.Status, err)
	symlink, err := c.Symlink(a.ctx, dir, name, "target")
	note("SYMLINK", symlink.Status, err)
	_, _ = c.Remove(a.ctx, dir, name)
	mknod, err := c.Mknod(a.ctx, nfs3.MknodArgs{Where: where(dir, name), Type: nfs3.TypeFIFO})
	note("MKNOD", mknod.Status, err)
	_, _ = c.Remove(a.ctx, dir, name)
	link, err := c.Link(a.ctx, file, dir, name)
	note("LINK", link.Status, err)
	_, _ = c.Remove(a.ctx, dir, name)
	return got
}

// useLink does with a symbolic link all that follows one, if it is followed.
func (a *assault) useLink(c *nfstest.Client, root nfs3.FH, name string, link nfs3.FH) {
	a.Helper()
	attr, err := c.Getattr(a.ctx, link)
	if err != nil || attr.Status != nfs3.OK || attr.Attr.Type != nfs3.TypeLnk {
		return // gone, or a directory at the moment
	}
	refused := func(what string, status nfs3.Status, err error) {
		a.Helper()
		if err == nil && status == nfs3.OK {
			a.Errorf("%s through a symbolic link succeeded", what)
		}
	}
	for _, inside := range []string{"secret", "instance.json", "passwd", ".."} {
		res, err := c.Lookup(a.ctx, link, inside)
		refused("LOOKUP of "+inside, res.Status, err)
	}
	read, err := c.Read(a.ctx, link, 0, 100)
	refused("READ", read.Status, err)
	write, err := c.Write(a.ctx, link, 0, nfs3.FileSync, []byte("mallory"))
	refused("WRITE", write.Status, err)
	set, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: link, Attr: size(0)})
	refused("SETATTR of the size", set.Status, err)
	list, err := c.Readdir(a.ctx, nfs3.ReaddirArgs{Dir: link, Count: 8192})
	refused("READDIR", list.Status, err)
	create, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(link, "made"), Attr: mode(0o666)})
	refused("CREATE in it", create.Status, err)
	remove, err := c.Remove(a.ctx, link, "secret")
	refused("REMOVE in it", remove.Status, err)
	rename, err := c.Rename(a.ctx, link, "secret", root, "stolen")
	refused("RENAME out of it", rename.Status, err)
	// A name that is a link is no file to open: what it leads to must not be cut.
	if name != "swap" {
		open, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(root, name), Attr: size(0)})
		if err == nil && open.Status == nfs3.OK {
			if attr, err := c.Getattr(a.ctx, open.Object); err == nil && attr.Attr.Type == nfs3.TypeReg {
				a.Errorf("CREATE over a symbolic link opened a file")
			}
		}
	}
	_, _ = c.Setattr(a.ctx, nfs3.SetattrArgs{Object: link, Attr: nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: 666}}})
	_, _ = c.Setattr(a.ctx, nfs3.SetattrArgs{Object: link, Attr: mode(0o777)})
}

// outside is all that is on the disk beside a volume: names, owners, modes, and what
// is in files. podnas's own state changes as it works, so of that there are the names.
func (a *assault) outside(volume string) string {
	a.Helper()
	var b strings.Builder
	err := filepath.WalkDir(a.disk.at, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == a.path(volume) {
			return fs.SkipDir
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %v %d:%d %d links", strings.TrimPrefix(path, a.disk.at), info.Mode(), st.Uid, st.Gid, st.Nlink)
		if info.Mode().IsRegular() && !strings.Contains(path, "/.podnas/") {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(data))
		}
		b.WriteByte('\n')
		return nil
	})
	must(a, err)
	return b.String()
}
