package controller

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"
)

// One event for each time that the disk is lost, with what to do.
func TestLostDisk(t *testing.T) {
	events := record.NewFakeRecorder(10)
	var lost error
	l := &lostDisk{err: func() error { return lost }, pod: ownPod("podnas", "podnas-0", "uid", events)}
	var got []string
	for _, lost = range []error{nil, errors.New("it hangs"), errors.New("it hangs still"), nil, errors.New("input/output error")} {
		l.look()
		select {
		case e := <-events.Events:
			got = append(got, e)
		default:
		}
	}
	if len(got) != 2 || !strings.Contains(got[0], "Warning DiskLost") || !strings.Contains(got[0], "it hangs.") || !strings.Contains(got[1], "input/output error") {
		t.Errorf("events: %q", got)
	}
}
