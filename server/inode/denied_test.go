package inode_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

const deniedDisk, deniedHandles = "PODNAS_DENIED_DISK", "PODNAS_DENIED_HANDLES"

// TestKernelHandlesDenied: a volume whose handles are the kernel's is served also where the runtime's seccomp profile denies
// name_to_handle_at(2), as containerd's did until the middle of 2023, with handles of the other form. This is said, and who has
// the volume mounted must mount it again.
func TestKernelHandlesDenied(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, diskDir string) {
		dir := filepath.Join(diskDir, "v")
		mustDo(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
		put(t, "data", dir, "d", "file")
		var handles []string
		for _, name := range []string{"d", "d/file"} {
			id, err := disk.ByHandle{}.Identify(unix.AT_FDCWD, []byte(filepath.Join(dir, name)))
			if err != nil {
				t.Skip(err)
			}
			handles = append(handles, hex.EncodeToString(id.Bytes()))
		}
		testdisk.Child(t, testdisk.User{Drops: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_ADMIN}}, "^TestKernelHandlesOfChild$",
			deniedDisk+"="+dir, deniedHandles+"="+strings.Join(handles, ","))
	})
}

// TestKernelHandlesOfChild runs as a child of TestKernelHandlesDenied.
func TestKernelHandlesOfChild(t *testing.T) {
	dir, ok := os.LookupEnv(deniedDisk)
	if !ok {
		t.Skip("it runs as a child of TestKernelHandlesDenied")
	}
	denyHandles(t)
	if _, err := (disk.ByHandle{}).Identify(unix.AT_FDCWD, []byte(dir)); !errors.Is(err, unix.EPERM) {
		t.Fatalf("name_to_handle_at is allowed: %v", err)
	}
	var said bytes.Buffer
	table := newTable(t)
	table.ByIndex, table.Log = true, slog.New(slog.NewTextHandler(&said, nil))
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir, Form: locate.FormKernel}))
	o := openerOf(t, table)
	v, _ := table.ByID(7)
	settled(t, v.Files.Index())
	if !strings.Contains(said.String(), "must mount it again") {
		t.Errorf("the log: %s", &said)
	}
	if got, err := contentOf(o, handleOf(t, o, o.Root(v), "d/file")); got != "data" || err != nil {
		t.Errorf("the file: %q, %v", got, err)
	}
	for _, text := range strings.Split(os.Getenv(deniedHandles), ",") {
		id, err := hex.DecodeString(text)
		mustDo(t, err)
		handle := locate.NewKey(make([]byte, 32)).Handle(7, disk.NewFileID(id))
		if _, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, handle, inode.UseAttr) }); !errors.Is(err, unix.ESTALE) {
			t.Errorf("the kernel's handle: %v", err)
		}
	}
}

// denyHandles has name_to_handle_at(2) answer EPERM to this process from now on, seccomp(2).
func denyHandles(t *testing.T) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_NAME_TO_HANDLE_AT},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mustDo(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		t.Skipf("seccomp: %v", errno)
	}
}

// Without DAC_READ_SEARCH the kernel's handles are not for use, whatever else the process may do: with
// deploy/overlays/xfs-quota it has SYS_ADMIN.
func TestProbeHandlesWithoutTheirRight(t *testing.T) {
	const child = "PODNAS_WITHOUT_RIGHT"
	if os.Getenv(child) == "" {
		testdisk.Child(t, testdisk.User{Drops: []uintptr{unix.CAP_DAC_READ_SEARCH}}, "^"+t.Name()+"$", child+"=1")
		return
	}
	var needs *disk.NeedsError
	if err := disk.ProbeHandles(t.TempDir()); !errors.As(err, &needs) || !strings.Contains(needs.Fix, "DAC_READ_SEARCH") {
		t.Errorf("%v, want that DAC_READ_SEARCH is needed", err)
	}
}
