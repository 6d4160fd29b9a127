package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/test/testdisk"
)

// Headers without an end, from one address and from many, take little memory, and
// probes get through meanwhile. It takes 20 seconds and a podnas without the race detector,
// so only CI runs it.
func TestUnfinishedHeaders(t *testing.T) {
	const (
		conns   = 1000
		header  = 900 << 10
		allowed = 64 << 20 // 512 connections of 16 KiB each, with what it takes to read them
	)
	testdisk.OnlyCI(t)
	s := startWeb(t, folder)
	before := s.status("RssAnon")
	line := bytes.Repeat([]byte("x"), header)
	for _, addresses := range []int{1, 200} {
		t.Run(fmt.Sprint(addresses, " addresses"), func(t *testing.T) {
			var sending sync.WaitGroup
			for i := range conns {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%addresses))}, Timeout: 10 * time.Second}
				c, err := d.DialContext(t.Context(), "tcp", s.http)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				sending.Go(func() { // until it is cut off
					_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
					if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "); err == nil {
						_, _ = c.Write(line)
					}
				})
				if i%50 == 0 {
					for _, path := range []string{"/healthz", "/readyz"} {
						if r := s.get("127.0.0.1", path); r.code != http.StatusOK {
							t.Errorf("%s beside %d connections: %d, %s", path, i, r.code, r.body)
						}
					}
				}
			}
			sending.Wait()
		})
	}
	most := s.status("VmHWM") - s.status("RssFile")
	t.Logf("%d KiB before, %d KiB at most", before>>10, most>>10)
	if most > before+allowed {
		t.Errorf("%d connections with headers of %d KiB took %d KiB", 2*conns, header>>10, (most-before)>>10)
	}
}
