package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

// keptKind is a kind of files or folders that podnas keeps for itself, and what becomes of one that is damaged: by
// default all volumes are served, and what can't be what podnas wrote is put aside.
type keptKind struct {
	pattern string // of the path below the bench's folder
	aside   string // the damages after which it is put aside
	either  string // those after which it may be: it depends on which byte is changed
	refuses string // those after which podnas does not serve the disk
	loses   string // those after which it does not serve the volume that the path names, and leaves its files
	follows string // those after which it works outside of the folder: a person may have wanted that
	// inMemory is whether it goes with the pod: the log tells of it, and no finding.
	inMemory bool
	// copies is what a copy of another is taken of, if not of a file beside it.
	copies string
}

// replaced are the damages that leave something else than a file, and changed those that leave another one.
const (
	replaced = "folder fifo link"
	changed  = "emptied cut byte zeroed copy"
)

// oneOfEachSort are those that are tried with each change: other contents, a file that is short, what is no file, and nothing.
var oneOfEachSort = []string{"byte", "cut", "file", "fifo", "gone"}

// keptKinds are all of them. A file that is none of them fails the test: say here what happens if it is damaged.
func keptKinds() []keptKind {
	return []keptKind{
		{pattern: `disk/\.podnas`, refuses: "emptied file fifo link gone"},
		{pattern: `disk/\.podnas/instance\.json`, refuses: replaced + " gone " + changed},
		{pattern: `disk/\.podnas/volumes`, refuses: "file fifo link gone", loses: "emptied"},
		{pattern: `disk/\.podnas/volumes/pvc-[^/]+\.json`, loses: replaced + " gone " + changed},
		{pattern: `disk/\.podnas/volumes/retained\.json`},
		{pattern: `disk/\.podnas/volumes/two\.json`, loses: replaced + " gone " + changed},
		{pattern: `disk/\.podnas/(archive|trash)`, aside: "file fifo link"},
		{pattern: `disk/\.podnas/archive/[^/]+\.json`},
		{pattern: `disk/\.podnas/trash/[^/]+\.json`},
		{pattern: `disk/\.podnas/lock`, aside: replaced},
		{pattern: `disk/\.podnas/heartbeat`, aside: replaced},

		{pattern: `disk/\.podnas/run`, aside: replaced + " emptied copy"},
		{pattern: `disk/\.podnas/control\.sock`, aside: "folder fifo link copy file"},
		{pattern: `disk/\.podnas/(clients|index|removed|reserve|usage)`, aside: "file fifo link"},
		{pattern: `disk/\.podnas/clients/[0-9a-f]{16}\.json`, aside: replaced + " emptied cut zeroed", either: "byte"},
		{pattern: `disk/\.podnas/clients/handover\.log`, aside: replaced + " " + changed},
		{pattern: `disk/\.podnas/index/[0-9]+`, aside: replaced},
		{pattern: `disk/\.podnas/removed/[^/]+`, aside: replaced},
		{pattern: `disk/\.podnas/reserve/(small|large)-[0-9]{2}`, aside: "folder"},
		{pattern: `disk/\.podnas/usage/[0-9]+`, aside: replaced + " emptied cut byte zeroed"},

		{pattern: `claims/provisioned`, aside: "file fifo", follows: "link"},
		{pattern: `claims/provisioned/pvc-[^/]+\.yaml`, aside: replaced + " emptied cut zeroed copy", either: "byte", copies: `claims/classes\.yaml`},
		{pattern: `log/clients-[0-9a-f]{8}`, aside: replaced, inMemory: true},
		{pattern: `log/clients-[0-9a-f]{8}\.tries`, aside: replaced, inMemory: true},
	}
}

// damages of a file, which has some contents. of is another file.
func damages() map[string]func(b *damageBench, path, of string) error {
	overwrite := func(change func([]byte) []byte) func(b *damageBench, path, of string) error {
		return func(_ *damageBench, path, _ string) error {
			contents, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, change(contents), 0o600)
		}
	}
	return map[string]func(b *damageBench, path, of string) error{
		"emptied": overwrite(func([]byte) []byte { return nil }),
		"cut":     overwrite(func(c []byte) []byte { return c[:len(c)/2] }),
		"byte":    overwrite(func(c []byte) []byte { c = bytes.Clone(c); c[len(c)/2] ^= 1; return c }),
		"zeroed":  overwrite(func(c []byte) []byte { return make([]byte, len(c)) }),
		"copy": func(_ *damageBench, path, of string) error {
			contents, err := os.ReadFile(of)
			return errors.Join(err, os.WriteFile(path, contents, 0o600))
		},
		"folder": func(_ *damageBench, path, _ string) error {
			return errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "below"), 0o700))
		},
		"fifo": func(_ *damageBench, path, _ string) error {
			return errors.Join(os.RemoveAll(path), syscall.Mkfifo(path, 0o600))
		},
		"link": func(b *damageBench, path, _ string) error { // to the same, outside
			outside := filepath.Join(b.dir, "outside", "target")
			return errors.Join(os.Rename(path, outside), os.Symlink(outside, path))
		},
		"gone": func(_ *damageBench, path, _ string) error { return os.RemoveAll(path) },
	}
}

// folderDamages are those of a folder.
func folderDamages() map[string]func(b *damageBench, path, of string) error {
	all := damages()
	return map[string]func(b *damageBench, path, of string) error{
		"emptied": func(_ *damageBench, path, _ string) error {
			return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700))
		},
		"file": func(_ *damageBench, path, _ string) error {
			return errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("x"), 0o600))
		},
		"fifo": all["fifo"], "link": all["link"], "gone": all["gone"],
	}
}

// socketDamages are those of a socket.
func socketDamages() map[string]func(b *damageBench, path, of string) error {
	all, folder := damages(), folderDamages()
	return map[string]func(b *damageBench, path, of string) error{
		"folder": all["folder"], "fifo": all["fifo"], "link": all["link"], "gone": all["gone"], "file": folder["file"],
	}
}

// damageBench is a folder with a disk, claims and a log of clients' state.
type damageBench struct {
	t   *testing.T
	dir string

	program, nfs, http string
	cmd                *exec.Cmd
	log                *syncBuffer
	ended              chan error
}

// begin starts podnas.
func (b *damageBench) begin() {
	b.t.Helper()
	b.nfs, b.http = freeAddress(b.t), freeAddress(b.t)
	b.log, b.ended = &syncBuffer{}, make(chan error, 1)
	b.cmd = exec.Command(b.program, "serve", "--standalone", "--handles=index", "--quota=server", "--claim-grace=1h",
		"--root="+b.in("disk"), "--claims="+b.in("claims"), "--state-log="+b.in("log"), "--listen="+b.nfs, "--http="+b.http)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	mustDo(b.t, b.cmd.Start())
	cmd, ended := b.cmd, b.ended
	go func() { ended <- cmd.Wait() }()
}

func (b *damageBench) in(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}

// ready waits until podnas serves, and returns false if it has ended.
func (b *damageBench) ready() bool {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-b.ended:
			b.ended <- err
			return false
		default:
		}
		if r, err := http.Get("http://" + b.http + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return true
			}
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("it neither serves nor ends:\n%s", b.log)
		}
	}
}

// end ends podnas by a signal, which has to do so in time.
func (b *damageBench) end(signal syscall.Signal) error {
	b.t.Helper()
	_ = b.cmd.Process.Signal(signal)
	select {
	case err := <-b.ended:
		return err
	case <-time.After(20 * time.Second):
		_ = b.cmd.Process.Kill()
		b.t.Fatalf("it does not end:\n%s", b.log)
		return nil
	}
}

// command runs a command of podnas.
func (b *damageBench) command(args ...string) string {
	b.t.Helper()
	out, errs, err := podnas(b.t.Context(), append(args, "--root="+b.in("disk"))...)
	if err != nil && args[0] != "doctor" {
		b.t.Fatalf("podnas %q: %v\n%s%s", args, err, out, errs)
	}
	return out + errs
}

// file is what is in a file of a volume, as a client reads it.
func (b *damageBench) file(client *nfstest.Client, volume string) string {
	b.t.Helper()
	ctx := b.t.Context()
	mnt, err := client.Mount(ctx, "/"+volume)
	if err != nil || mnt.Status != mount3.OK {
		return fmt.Sprintf("not mounted: %v, %v", mnt.Status, err)
	}
	root := slices.Clone(mnt.Handle)
	found, err := client.Lookup(ctx, root, "file")
	if err != nil || found.Status != nfs3.OK {
		return fmt.Sprintf("not found: %v, %v", found.Status, err)
	}
	read, err := client.Read(ctx, slices.Clone(found.Object), 0, 100)
	if err != nil || read.Status != nfs3.OK {
		return fmt.Sprintf("not read: %v, %v", read.Status, err)
	}
	return string(read.Data)
}

// makeDamageBench makes a disk on which everything was used, as podnas leaves it when it ends, and when it is killed.
func makeDamageBench(t *testing.T) (stopped, killed *damageBench) {
	program, err := builtPodnas()
	mustDo(t, err)
	b := &damageBench{t: t, dir: t.TempDir(), program: program}
	mustDo(t, errors.Join(os.Mkdir(b.in("disk"), 0o755), os.Mkdir(b.in("claims"), 0o755), os.Mkdir(b.in("log"), 0o700), os.Mkdir(b.in("outside"), 0o755)))
	mustDo(t, errors.Join(os.WriteFile(b.in("claims", "classes.yaml"), []byte(classText), 0o600), os.WriteFile(b.in("claims", "data.yaml"), []byte(claimText("podnas", "64Mi")), 0o600)))
	b.begin()
	if !b.ready() {
		t.Fatal(b.log)
	}
	waitUntil(t, "the claim has a volume", func() bool { return b.claimed() != "" })
	b.command("volume", "create", "two", "--size=64Mi")
	for name, fate := range map[string]string{"archived": "archive", "trashed": "archive", "trashed-too": "archive", "retained": "retain"} {
		b.command("volume", "create", name, "--size=1Mi", "--on-delete="+fate)
		mustDo(t, os.WriteFile(b.in("disk", name, "file"), []byte(name), 0o644))
		b.command("volume", "delete", "--force", "--yes", name)
	}
	mustDo(t, b.end(syscall.SIGTERM))
	for _, volume := range b.volumes() {
		mustDo(t, os.WriteFile(b.in("disk", volume, "file"), []byte(volume), 0o644))
	}
	for n := range 1000 { // enough for an index
		mustDo(t, os.WriteFile(b.in("disk/two", fmt.Sprint(n)), nil, 0o644))
	}
	b.begin()
	if !b.ready() {
		t.Fatal(b.log)
	}
	for _, name := range []string{"one", "other"} {
		join(t, b.nfs, name).lock("two", "locked by "+name, 0, 10)
	}
	node := join(t, b.nfs, "third")
	node.lock("two", "removed", 0, 10)
	node.must(node.do(
		operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}},
		operation{Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte("two")}, Res: &nfs4.StatusRes{}},
		operation{Num: nfs4.OpRemove, Args: &nfs4.NameArgs{Name: []byte("removed")}, Res: &nfs4.ChangeRes{}},
	))
	waitUntil(t, "the volumes are counted and indexed", func() bool {
		usage, _ := filepath.Glob(b.in("disk/.podnas/usage/*"))
		return len(usage) == 2
	})
	mustDo(t, b.end(syscall.SIGTERM))
	mustDo(t, b.trashHalf("trashed"))
	stopped = b.copy(t)

	for range 2 { // the second one goes on with the log of the first, and counts that
		b.begin()
		if !b.ready() {
			t.Fatal(b.log)
		}
		b.end(syscall.SIGKILL) //nolint:errcheck // that it was killed
	}
	mustDo(t, b.trashHalf("trashed-too"))
	// A copy would be served with other keys while the state directory of the original is there.
	for _, args := range [][]string{{"cp", "-a", b.in("disk/.podnas"), b.in("disk/.copy")}, {"rm", "-r", b.in("disk/.podnas")}, {"mv", b.in("disk/.copy"), b.in("disk/.podnas")}} {
		mustDo(t, exec.Command(args[0], args[1:]...).Run())
	}
	return stopped, b
}

// claimed is the volume of the claim.
func (b *damageBench) claimed() string {
	found, _ := filepath.Glob(b.in("claims/provisioned/pvc-*.yaml"))
	if len(found) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(found[0]), ".yaml")
}

func (b *damageBench) volumes() []string {
	found, _ := filepath.Glob(b.in("disk/pvc-*"))
	if len(found) != 1 {
		b.t.Fatalf("the claim has the volumes %v", found)
	}
	return []string{"two", filepath.Base(found[0])}
}

// trashHalf leaves an archived volume as a kill in its deletion does: its record is in the trash.
func (b *damageBench) trashHalf(name string) error {
	records, _ := filepath.Glob(b.in("disk/.podnas/archive/*.json"))
	for _, record := range records {
		if contents, err := os.ReadFile(record); err != nil || !bytes.Contains(contents, []byte(`"`+name+`"`)) {
			continue
		}
		id := strings.TrimSuffix(filepath.Base(record), ".json")
		trash := b.in("disk/.podnas/trash", id)
		return errors.Join(os.Rename(b.in("disk/.podnas/archive", id), trash), os.Rename(record, trash+".json"))
	}
	return fmt.Errorf("%s is not in the archive", name)
}

func (b *damageBench) copy(t *testing.T) *damageBench {
	t.Helper()
	to := &damageBench{t: t, dir: t.TempDir(), program: b.program}
	// The files of volumes are the same ones, so they are found by the index.
	for _, args := range [][]string{
		{"-a", b.in("claims"), b.in("log"), b.in("outside"), to.dir},
		{"-al", b.in("disk"), to.dir},
		{"-a", "--remove-destination", b.in("disk/.podnas"), to.in("disk")},
	} {
		if out, err := exec.Command("cp", args...).CombinedOutput(); err != nil {
			t.Fatalf("cp %q: %v\n%s", args, err, out)
		}
	}
	return to
}

// kept are the paths of what podnas keeps for itself, one of each kind that has many.
func (b *damageBench) kept() (paths []string) {
	seen := map[string]bool{}
	for _, top := range []string{"disk/.podnas", "claims/provisioned", "log"} {
		err := filepath.WalkDir(b.in(top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			path, _ = filepath.Rel(b.dir, path)
			if path == "log" {
				return nil // the folder that a person has named
			}
			if regexp.MustCompile(`^disk/\.podnas/(archive|trash)/[^./]+$`).MatchString(path) {
				return fs.SkipDir // files of users
			}
			if strings.HasPrefix(d.Name(), ".pvc-") || strings.HasSuffix(d.Name(), ".tmp") {
				return nil // it was being written when podnas was killed
			}
			kind := regexp.MustCompile(`reserve/(small|large)-.*`).ReplaceAllString(path, "reserve/$1")
			if !seen[kind] {
				seen[kind] = true
				paths = append(paths, path)
			}
			return nil
		})
		mustDo(b.t, err)
	}
	return paths
}

// tree is what is in a folder: the paths, and what the files and links say.
func tree(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	mustDo(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, strings.TrimPrefix(path, dir), d.Type())
		if d.Type().IsRegular() {
			contents, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%d %s\n", len(contents), contents)
			return err
		}
		return nil
	}))
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// Whatever is done to a file or a folder of podnas's own: it serves all volumes with their data, tells what was put aside,
// ends when it is asked to, and changes nothing outside of the disk.
func TestDamagedState(t *testing.T) {
	testdisk.OnlyCI(t)
	if os.Getuid() != 0 {
		t.Skip("the native engine needs root")
	}
	stopped, killed := makeDamageBench(t)
	tried := map[string]bool{}
	for _, b := range []*damageBench{stopped, killed} {
		for _, path := range b.kept() {
			k := kindOf(path)
			if k == nil {
				t.Errorf("podnas has written %s: say in keptKinds what becomes of it when it is damaged", path)
				continue
			}
			again := tried[k.pattern]
			tried[k.pattern] = true
			if again {
				continue
			}
			for name, damage := range b.damagesOf(path) {
				t.Run(path+" "+name, func(t *testing.T) {
					if !slices.Contains(oneOfEachSort, name) {
						testdisk.NotInShort(t, "a damage of its sort is tried")
					}
					t.Parallel()
					b.copy(t).damaged(path, name, k, damage)
				})
			}
		}
	}
	for _, k := range keptKinds() {
		if !tried[k.pattern] {
			t.Errorf("nothing on the disk is %s: the test does not use what writes it", k.pattern)
		}
	}
}

// kindOf returns the kind of a path, or nil.
func kindOf(path string) *keptKind {
	for _, k := range keptKinds() {
		if regexp.MustCompile("^" + k.pattern + "$").MatchString(path) {
			return &k
		}
	}
	return nil
}

// damagesOf returns what can be done to a path.
func (b *damageBench) damagesOf(path string) map[string]func(b *damageBench, path, of string) error {
	info, err := os.Lstat(b.in(path))
	mustDo(b.t, err)
	switch {
	case info.IsDir():
		return folderDamages()
	case info.Mode().Type() == fs.ModeSocket:
		return socketDamages()
	}
	all := damages()
	if info.Size() == 0 {
		for _, name := range []string{"emptied", "cut", "byte", "zeroed"} {
			delete(all, name)
		}
	}
	return all
}

// damaged damages a file and starts podnas.
func (b *damageBench) damaged(path, name string, k *keptKind, damage func(b *damageBench, path, of string) error) {
	t := b.t
	of := ""
	if name == "copy" {
		of = b.another(path, k)
	}
	mustDo(t, damage(b, b.in(path), of))
	outside := tree(t, b.in("outside"))
	volumes := b.volumes()
	kept := tree(t, b.in("disk/retained"))
	b.begin()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		if t.Failed() {
			t.Log(b.log)
		}
	})
	has := func(list string) bool { return slices.Contains(strings.Fields(list), name) }
	ready := b.ready()
	for tries := 0; !ready && tries < 5 && strings.Contains(b.log.String(), "address already in use"); tries++ { // by a test beside this one
		b.begin()
		ready = b.ready()
	}
	if !ready {
		if !has(k.refuses) {
			t.Errorf("it does not serve: %v", <-b.ended)
		}
		return
	}
	if has(k.refuses) {
		t.Error("it serves")
	}
	client, err := nfstest.Dial(t.Context(), b.nfs, b.nfs)
	mustDo(t, err)
	defer client.Close()
	for _, volume := range volumes {
		got := b.file(client, volume)
		if has(k.loses) && (strings.HasSuffix(path, "/volumes") || strings.Contains(path, "/"+volume+".json")) {
			contents, err := os.ReadFile(b.in("disk", volume, "file"))
			if string(contents) != volume || got == volume {
				t.Errorf("volume %s: %q, and on the disk %q, %v", volume, got, contents, err)
			}
		} else if got != volume {
			t.Errorf("volume %s: %q", volume, got)
		}
	}
	b.volumes() // the claim has not got another one
	aside := b.in(path) + ".damaged-1"
	isAside := func() bool { _, err := os.Lstat(aside); return err == nil }
	if has(k.aside) {
		waitUntil(t, "it is put aside", isAside)
		waitUntil(t, "it is told", func() bool {
			told := b.log.String()
			if !k.inMemory {
				told, _, _ = podnas(t.Context(), "doctor", "--root="+b.in("disk")) // it fails where something is wrong
			}
			return strings.Contains(told, filepath.Base(aside))
		})
	}
	if err := b.end(syscall.SIGTERM); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if !has(k.aside) && !has(k.either) && isAside() {
		t.Error("it was put aside")
	}
	if !has(k.follows) && tree(t, b.in("outside")) != outside {
		t.Error("what is outside of the disk was changed")
	}
	if tree(t, b.in("disk/retained")) != kept {
		t.Error("a retained volume was changed")
	}
}

// another returns a file that can be in the place of another.
func (b *damageBench) another(path string, k *keptKind) string {
	if k.copies != "" {
		for _, other := range append(b.kept(), "claims/classes.yaml") {
			if regexp.MustCompile("^" + k.copies + "$").MatchString(other) {
				return b.in(other)
			}
		}
		b.t.Fatalf("there is no %s to be copied", k.copies)
	}
	beside, _ := filepath.Glob(filepath.Join(filepath.Dir(b.in(path)), "*"))
	for _, other := range beside {
		if info, err := os.Lstat(other); err == nil && info.Mode().IsRegular() && other != b.in(path) {
			return other
		}
	}
	return b.in("claims/data.yaml")
}
