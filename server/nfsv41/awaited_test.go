package nfsv41_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/podnas/podnas/server/nfsv41"
)

// comesFrom is a connection from an address.
type comesFrom string

func (c *comesFrom) Address() string { return string(*c) }

// After a crash the server says for whom it waits, and from where each had come, and does not wait for who is excused.
func TestAwaited(t *testing.T) {
	l := newLife(t)
	s := l.start()
	if s.InGrace() || s.Awaited() != nil {
		t.Error("it waits though nobody had anything")
	}
	l.openFrom(s, "Linux NFSv4.2 node3.example.org", "10.0.0.3:700", "x")
	l.openFrom(s, "Linux NFSv4.2 node4", "[::ffff:10.0.0.4]:700", "x")
	l.open(s, "somebody")
	l.cfg.StateLog = t.TempDir() // another node's: that of the first is lost
	want := map[string]nfsv41.AwaitedClient{
		"Linux NFSv4.2 node3.example.org": {Owner: "Linux NFSv4.2 node3.example.org", Host: "node3.example.org", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}},
		"Linux NFSv4.2 node4":             {Owner: "Linux NFSv4.2 node4", Host: "node4", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4")}},
		"somebody":                        {Owner: "somebody", Addresses: []netip.Addr{{}}},
	}
	for _, wentOn := range []bool{false, true} { // the second goes on with the grace period of the first
		s = l.start()
		got := map[string]nfsv41.AwaitedClient{}
		for _, c := range s.Awaited() {
			got[c.Owner] = c
		}
		if s.WentOn() != wentOn || !reflect.DeepEqual(got, want) {
			t.Errorf("went on %t: it waits for %+v, want %+v", s.WentOn(), got, want)
		}
	}
	s.Excuse("Linux NFSv4.2 node4")
	if got := s.Awaited(); len(got) != 2 || !s.InGrace() {
		t.Errorf("it waits for %+v", got)
	}
	s.Excuse("Linux NFSv4.2 node3.example.org", "somebody")
	if s.InGrace() || len(entries(l)) > 0 {
		t.Errorf("it waits for %+v, and the list on the disk has %v", s.Awaited(), entries(l))
	}
}

// A server with another lease says so to clients and waits for those of the one before for as long as they need.
func TestLeaseSet(t *testing.T) {
	l := newLife(t)
	l.cfg.Lease = 40 * time.Second
	s := l.start()
	l.open(s, "one")
	l.cfg.Lease = nfsv41.ShortestLease
	s = l.move(3)
	left := time.Until(s.State().Snapshot(1).Grace.Until)
	if !s.InGrace() || left < 70*time.Second || left > 80*time.Second {
		t.Errorf("in grace %t for %s, want two leases of 40 s", s.InGrace(), left)
	}
}
