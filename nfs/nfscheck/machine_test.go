package nfscheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/internal/doctor"
)

// newMachine is a root directory with what a node has.
func newMachine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNode(t *testing.T) {
	const plain, withNFS = "nodev\tproc\n\text4\n", "nodev\tproc\nnodev\tnfs\nnodev\tnfs4\n"
	const release, modules = "proc/sys/kernel/osrelease", "lib/modules/6.1.0/modules.dep"
	for _, tt := range []struct {
		name           string
		files          map[string]string
		pod            bool
		helper, kernel doctor.Status
		says           string
	}{
		{"a node", map[string]string{"sbin/mount.nfs": "", "proc/filesystems": withNFS}, false, doctor.OK, doctor.OK, "/sbin/mount.nfs is there"},
		{"merged /usr", map[string]string{"usr/sbin/mount.nfs": "", "proc/filesystems": withNFS}, false, doctor.OK, doctor.OK, "the kernel supports NFS"},
		{"no mount.nfs", map[string]string{"proc/filesystems": withNFS}, false, doctor.Failed, doctor.OK, "no mount.nfs"},
		{"a module", map[string]string{"sbin/mount.nfs": "", "proc/filesystems": plain, release: "6.1.0\n", modules: "kernel/fs/nfs/nfsv3.ko.xz: kernel/fs/nfs/nfs.ko.xz\n"}, false, doctor.OK, doctor.OK, "as a module"},
		{"no module", map[string]string{"sbin/mount.nfs": "", "proc/filesystems": plain, release: "6.1.0\n", modules: "kernel/fs/ext4/ext4.ko:\n"}, false, doctor.OK, doctor.Failed, "no module for it"},
		{"no modules at all", map[string]string{"sbin/mount.nfs": "", "proc/filesystems": plain, release: "6.1.0\n"}, false, doctor.OK, doctor.Failed, "no module for it"},
		{"no proc", map[string]string{"sbin/mount.nfs": ""}, false, doctor.OK, doctor.Warning, "can't tell which file systems"},
		{"a pod", map[string]string{"proc/filesystems": plain, release: "6.1.0\n"}, true, doctor.OK, doctor.OK, "its node mounts"},
	} {
		n := Node{Root: newMachine(t, tt.files), InPod: tt.pod}
		results := doctor.Run(t.Context(), n.Checks())
		if results[0].Status != tt.helper || results[1].Status != tt.kernel || !strings.Contains(results[0].Says+"\n"+results[1].Says, tt.says) {
			t.Errorf("%s: %+v, want %s, %s with %q", tt.name, results, tt.helper, tt.kernel, tt.says)
		}
	}
}

// For a mount of version 4 the kernel needs what is for that.
func TestNodeVersion4(t *testing.T) {
	for kinds, want := range map[string]doctor.Status{"nodev\tnfs\nnodev\tnfs4\n": doctor.OK, "nodev\tnfs\n": doctor.Failed} {
		n := Node{NFS4: true, Root: newMachine(t, map[string]string{"sbin/mount.nfs": "", "proc/filesystems": kinds, "proc/sys/kernel/osrelease": "6.1.0\n"})}
		if r := n.kernel(); r.Status != want || want != doctor.OK && !strings.Contains(r.Fix, "nfsv4") {
			t.Errorf("with %q: %+v, want %s", kinds, r, want)
		}
	}
}

func TestJudgeMounted(t *testing.T) {
	mount := func(kind, options string) doctor.Result {
		return judgeMounted("/data", doctor.Mount{Point: "/data", Type: kind, Source: "10.0.0.1:/v", Options: strings.Split(options, ",")})
	}
	for _, tt := range []struct {
		name   string
		r      doctor.Result
		status doctor.Status
		says   string
	}{
		{"good", mount("nfs", "rw,vers=3,hard,nolock,local_lock=all"), doctor.OK, "10.0.0.1:/v on /data"},
		{"no NFS", mount("ext4", "rw"), doctor.Failed, "is not on NFS"},
		{"version 4.1", mount("nfs4", "rw,vers=4.1,hard,local_lock=none"), doctor.OK, "10.0.0.1:/v on /data"},
		{"version 4.1, soft", mount("nfs4", "rw,vers=4.1,soft"), doctor.Warning, "writes are lost"},
		{"version 4.2", mount("nfs4", "rw,vers=4.2,hard,local_lock=none"), doctor.OK, "10.0.0.1:/v on /data"},
		{"version 4.0", mount("nfs4", "rw,vers=4.0"), doctor.Failed, "another server's"},
		{"version 2", mount("nfs", "rw,vers=2"), doctor.Failed, "another server's"},
		{"soft", mount("nfs", "rw,vers=3,soft,nolock"), doctor.Warning, "writes are lost"},
		{"lock", mount("nfs", "rw,vers=3,hard,local_lock=none"), doctor.Warning, "every lock fails"},
	} {
		if tt.r.Status != tt.status || !strings.Contains(tt.r.Says, tt.says) || (tt.r.Fix == "") != (tt.status == doctor.OK) {
			t.Errorf("%s: %+v, want %s with %q", tt.name, tt.r, tt.status, tt.says)
		}
	}
	all := doctor.Steps(t.Context(), Mountpoint(t.TempDir()))
	if len(all) != 1 || all[0].Status != doctor.Failed {
		t.Errorf("a directory on no NFS: %+v", all)
	}
}

// The steps after the first, on a local disk; test/vm has them on a kernel's mount.
func TestMountpointSteps(t *testing.T) {
	dir := t.TempDir()
	all := doctor.Steps(t.Context(), Mountpoint(dir)[1:])
	if len(all) != 5 || doctor.Count(all, doctor.OK) != 5 {
		t.Errorf("on a good disk: %+v", all)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if all := doctor.Steps(t.Context(), Mountpoint(filepath.Join(dir, "nothing"))[1:]); len(all) != 1 || all[0].Status != doctor.Failed {
		t.Errorf("no directory: %+v", all)
	}
	four := &mountpoint{path: dir, version4: true}
	if r := four.write(); r.Status != doctor.OK {
		t.Errorf("writing: %+v", r)
	}
	if r := four.locks(); r[0].Says != "flock works, between all nodes" || r[1].Says != "fcntl works, between all nodes" {
		t.Errorf("locks of version 4: %+v", r)
	}
	if r := four.remove(); r.Status != doctor.OK {
		t.Errorf("removing: %+v", r)
	}
	p := &mountpoint{path: dir}
	for err, says := range map[error]string{
		syscall.ESTALE: "delete the pod",
		syscall.EROFS:  "readOnly",
		syscall.ENOSPC: "raise the claim's request",
		syscall.EDQUOT: "raise the claim's request",
		syscall.EACCES: "securityContext.runAsUser",
		syscall.EIO:    "dmesg",
	} {
		r := p.failed("a write", fmt.Errorf("wrapped: %w", &fs.PathError{Op: "open", Path: "x", Err: err}))
		if r.Status != doctor.Failed || !strings.Contains(r.Fix, says) || !strings.Contains(r.Says, "a write") {
			t.Errorf("%v: %+v, want %q", err, r, says)
		}
	}
	// Where locks are not to be had, the file does not stay.
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p.file = file
	results := p.locks()
	if results[0].Status != doctor.Failed || !strings.Contains(results[0].Says, "flock") || results[1].Status != doctor.OK {
		t.Errorf("a lock that is taken: %+v", results)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is left")
	}
}
