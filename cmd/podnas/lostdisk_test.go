package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// TestNoAnswerFromALostDisk stops podnas while its disk hangs, as a machine that is stopped while another one takes the disk over.
// When podnas goes on it executes a READ from the kernel's memory, which the other podnas may have overwritten: no
// answer leaves. When the disk is back, and it was no takeover, the answer comes.
func TestNoAnswerFromALostDisk(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startWeb(t, freezable)
	commands := control.NewClient(s.root)
	_, err := commands.Create(t.Context(), control.CreateRequest{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	client, err := nfstest.Dial(t.Context(), s.nfs, s.nfs)
	mustDo(t, err)
	t.Cleanup(client.Close)
	mount, err := client.Mount(t.Context(), "/v")
	mustDo(t, err)
	made, err := client.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: mount.Handle, Name: []byte("file")}})
	mustDo(t, err)
	if made.Status != nfs3.OK {
		t.Fatal(made.Status)
	}
	file := made.Object
	content := []byte("what was true")
	write, err := client.Write(t.Context(), file, 0, nfs3.FileSync, content)
	if err != nil || write.Status != nfs3.OK {
		t.Fatal(write.Status, err)
	}
	read := func() <-chan error {
		answered := make(chan error, 1)
		go func() {
			r, err := client.Read(t.Context(), file, 0, 100)
			if err == nil && (r.Status != nfs3.OK || !bytes.Equal(r.Data, content)) {
				err = fmt.Errorf("%v, %q", r.Status, r.Data)
			}
			answered <- err
		}()
		return answered
	}
	mustDo(t, <-read())

	mustDo(t, s.freeze("--freeze"))
	mustDo(t, syscall.Kill(s.pid, syscall.SIGSTOP))
	time.Sleep(6 * time.Second) // by now another podnas may answer
	stale := read()
	mustDo(t, syscall.Kill(s.pid, syscall.SIGCONT))
	select {
	case err := <-stale:
		t.Errorf("answered: %v", err)
	case <-time.After(3 * time.Second):
	}
	if r := s.get("127.0.0.1", "/readyz"); r.code != http.StatusServiceUnavailable || !strings.HasPrefix(r.body, "disk: no answer for ") {
		t.Errorf("ready: %d %q", r.code, r.body)
	}
	report, err := commands.Doctor(t.Context())
	if err != nil || !told(report.Checks, "disk", doctor.Failed, "clients get no answers") {
		t.Errorf("podnas doctor: %+v, %v", report.Checks, err)
	}
	s.eventually("the log has it", func() bool { return strings.Contains(s.log.String(), "it may be lost") })
	if n := strings.Count(s.log.String(), "it may be lost"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if r := s.get("127.0.0.1", "/"); !strings.Contains(r.body, "clients get no answers") {
		t.Error("the page says nothing of it")
	}
	if r := s.get("127.0.0.1", "/metrics"); !strings.Contains(r.body, "\npodnas_disk_heartbeat_age_seconds ") {
		t.Error("there is no metric")
	}

	mustDo(t, s.freeze("--unfreeze"))
	select {
	case err := <-stale:
		mustDo(t, err)
	case <-time.After(10 * time.Second):
		t.Error("not answered when the disk is back")
	}
	s.eventually("podnas is ready", func() bool { return s.get("127.0.0.1", "/readyz").code == http.StatusOK })
}
