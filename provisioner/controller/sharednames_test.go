package controller

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/record"
)

// One event for a name that two nodes have, and another one if that goes on.
func TestSharedNames(t *testing.T) {
	events := record.NewFakeRecorder(10)
	var names []SharedName
	s := sharedNames{list: func() []SharedName { return names }, pod: ownPod("ns", "podnas-0", "uid", events)}
	looks := func(want string) {
		t.Helper()
		s.look()
		got := ""
		select {
		case got = <-events.Events:
		default:
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("the event is %q, want %q", got, want)
		}
	}
	looks("")
	noticed := time.Now()
	names = []SharedName{{Name: "Linux NFSv4 pi", Address: "10.0.0.1:700", Other: "10.0.0.2:800", Last: noticed}}
	event := `Warning NodesShareName Two nodes call themselves "Linux NFSv4 pi", so one can't mount while the other does, or each loses its open files and locks to the other: the one at 10.0.0.1:700, and the one at 10.0.0.2:800 before it.`
	looks(event)
	looks("")
	names[0].Last = noticed.Add(time.Minute)
	looks("")
	names[0].Last = noticed.Add(sharedNamesAgain)
	looks(event)
	looks("")
	names = nil
	looks("")
	names = []SharedName{{Name: "Linux NFSv4 pi", Last: noticed.Add(sharedNamesAgain)}}
	looks("Warning NodesShareName")
}
