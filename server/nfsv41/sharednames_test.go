package nfsv41

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/podnas/podnas/server/nfsv41/state"
)

func TestSharedNames(t *testing.T) {
	var out bytes.Buffer
	e := newEvents(slog.New(slog.NewTextHandler(&out, nil)))
	for _, owner := range []string{"Linux NFSv4.2 b\n", "Linux NFSv4.1 b\n"} { // a name that two nodes share is one
		e.tell(state.Event{Kind: state.OwnerShared, Owner: owner, Address: "10.0.0.1:700", Other: "10.0.0.2:800"})
	}
	e.tell(state.Event{Kind: state.OwnerShared, Owner: "Linux NFSv4.1 a", Address: "10.0.0.3:700", Other: "10.0.0.4:800"})
	now := time.Now()
	all := e.shared.list(now)
	if len(all) != 2 || all[0].Name != "Linux NFSv4 a" || all[1].Name != `Linux NFSv4 b\n` || all[1].Address != "10.0.0.1:700" || all[1].Other != "10.0.0.2:800" {
		t.Errorf("got %+v", all)
	}
	if all := e.shared.list(now.Add(sharedFor + time.Second)); len(all) != 0 {
		t.Errorf("after an hour without a sign: %+v", all)
	}
	for i := range 1000 {
		e.shared.add(SharedName{Name: fmt.Sprint(i), Last: now.Add(time.Duration(i))})
	}
	if all := e.shared.list(now); len(all) != sharedMax || all[0].Name != fmt.Sprint(1000-sharedMax) {
		t.Errorf("%d are kept, the first is %+v", len(all), all[0])
	}
}
