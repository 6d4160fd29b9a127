//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTwoNodesOfOneName: the second one's mount waits until the first one has left, which loses nothing, and podnas tells of both. With
// another nfs4_unique_id, as docs/troubleshooting.md has it, each keeps what it has.
func TestTwoNodesOfOneName(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := newAppliance(t, settings{listen: ":20490"})
	a.start()
	pv := a.volume("shared", "256Mi")
	nodes := [2]*node{newMachine(t, 1, "raspberrypi"), newMachine(t, 2, "raspberrypi")}
	noticed := func() int { return bytes.Count(a.output(), []byte("two nodes have the same host name")) }
	t.Run("one name", func(t *testing.T) {
		first, second := nodes[0], nodes[1]
		pv.Spec.NFS.Server = first.addr
		first.must(func() error { first.mnt = mount(t, pv); return nil })
		log := startLog(t, filepath.Join(first.mnt, "log-0"))
		log.grows(t, 1)
		mounted := make(chan error, 1)
		pv.Spec.NFS.Server = second.addr
		go func() { mounted <- second.do(func() error { second.mnt = mount(t, pv); return nil }) }()
		eventually(t, "podnas notices it", func() bool { return noticed() > 0 })
		if out, _ := run(t, "doctor", "--root="+a.root); !strings.Contains(out, `two nodes call themselves "Linux NFSv4 raspberrypi"`) || !strings.Contains(out, "10.77.1.2:") || !strings.Contains(out, "10.77.2.2:") {
			t.Errorf("podnas doctor says\n%s", out)
		}
		eventually(t, "the status page says it", func() bool {
			page, err := get("http://" + probes + "/")
			return err == nil && strings.Contains(page, "two nodes call themselves")
		})
		log.grows(t, 10)
		select {
		case err := <-mounted:
			t.Fatalf("the second node's mount is not waiting: %v", err)
		default:
		}
		n := log.stop(t)
		unmountNow(t, first.mnt)
		wants(t, "the second node's mount", <-mounted, nil)
		checkLog(t, filepath.Join(second.mnt, "log-0"), n)
		log = startLog(t, filepath.Join(second.mnt, "log-1"))
		log.grows(t, 10)
		checkLog(t, filepath.Join(a.dir(pv), "log-1"), log.stop(t))
	})
	t.Run("with nfs4_unique_id", func(t *testing.T) {
		for i, v := range nodes {
			v.must(func() error { return setUniqueID(t, fmt.Sprint("machine-", i)) })
			pv.Spec.NFS.Server = v.addr
			v.must(func() error { v.mnt = mount(t, pv); return nil })
		}
		before := noticed()
		mine, theirs := nodes[0].open(t, "lock", os.O_RDWR|os.O_CREATE), nodes[1].open(t, "lock", os.O_RDWR)
		wants(t, "lock", lock(mine, unix.F_WRLCK, 0, 0), nil)
		for range 20 {
			wants(t, "the other's lock", lock(theirs, unix.F_WRLCK, 0, 0), syscall.EAGAIN)
			_, err := mine.WriteAt([]byte("mine"), 0)
			wants(t, "a write under the lock", errors.Join(err, mine.Sync()), nil)
		}
		if n := noticed() - before; n != 0 {
			t.Errorf("they are noticed %d times more", n)
		}
	})
}

func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// setUniqueID does for the network of the thread what the module's parameter nfs4_unique_id
// does for that of the machine.
func setUniqueID(t *testing.T, id string) error {
	t.Helper()
	sys := t.TempDir()
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	defer unmount(t, sys)
	return os.WriteFile(filepath.Join(sys, "fs/nfs/net/nfs_client/identifier"), []byte(id), 0)
}
