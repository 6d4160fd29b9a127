package process

import (
	"math"
	"testing"
	"time"
)

func TestTexts(t *testing.T) {
	for want, got := range map[string]string{
		"open read":                     (&Open{Access: "read"}).Text(),
		"open read+write, denies write": (&Open{Access: "read+write", Deny: "write"}).Text(),
		"lock write":                    (&Lock{Type: "write", Length: math.MaxUint64}).Text(),
		"lock read 10 to 10":            (&Lock{Type: "read", Offset: 10, Length: 1}).Text(),
		"lock write from 7":             (&Lock{Type: "write", Offset: 7, Length: math.MaxUint64}).Text(),
		"waits for lock write":          (&Lock{Type: "write", Waiting: true, Length: math.MaxUint64}).Text(),
		"podnas was restarted: for at most 7s only clients that had files open or locked can open or lock files; it waits for a, b": (&Grace{
			Until: time.Unix(107, 0), Awaited: []string{"a", "b"},
		}).Text(time.Unix(100, 0)),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Of one volume there are its files, and the clients that have some of them.
func TestOf(t *testing.T) {
	holder := func(volume, client string) Holder { return Holder{Volume: volume, ClientID: client} }
	all := NFS4{
		Clients: []Client{{ID: "1"}, {ID: "2"}, {ID: "3"}},
		Opens:   []Open{{Holder: holder("v", "1")}, {Holder: holder("w", "3")}},
		Locks:   []Lock{{Holder: holder("w", "1")}, {Holder: holder("v", "2")}},
		Grace:   &Grace{},
	}
	of := all.Of("v")
	if len(of.Opens) != 1 || len(of.Locks) != 1 || len(of.Clients) != 2 || of.Clients[1].ID != "2" || of.Grace == nil {
		t.Errorf("of v there is %+v", of)
	}
	if none := all.Of("x"); none.Clients == nil || none.Opens == nil || none.Locks == nil || len(none.Clients) != 0 || len(all.Clients) != 3 {
		t.Errorf("of x there is %+v, of %+v", none, all)
	}
}
