package stats

import (
	"net/netip"
	"testing"
)

func BenchmarkCall(b *testing.B) {
	s := New([]string{"NULL", "READ"}, nil)
	c := s.Connect(netip.MustParseAddr("192.0.2.1"))
	var v Volume
	for b.Loop() {
		call := Call{Volume: &v, Read: 4096}
		c.Begin(&call, 1)
		c.End(&call, 0, 1)
	}
}
