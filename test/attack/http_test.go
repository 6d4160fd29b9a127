//go:build attack

package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var httpAttacks = []attack{
	{
		name:  "headers without an end",
		does:  "hundreds of connections to the HTTP port send 0.9 MB of a header, and no more",
		holds: "memory stays within its bound, probes are answered",
		run: func(a *assault) {
			a.beside(func() {
				raw := append([]byte("GET / HTTP/1.1\r\nHost: 10.77.0.1:8080\r\nX-Mallory: "), bytes.Repeat([]byte{'a'}, 900_000)...)
				conns := a.httpConns(a.many(600, 5000))
				sendAll(conns, memoryPatience, func(int) []byte { return raw })
				time.Sleep(a.window)
				for _, conn := range conns {
					conn.Close()
				}
			})
		},
	},
	{
		name:  "idle connections to the pages",
		does:  "thousands of connections to the HTTP port, some with a request and a reply that is not read",
		holds: "probes are answered",
		run: func(a *assault) {
			a.beside(func() {
				conns := a.httpConns(a.many(3000, 8000))
				sendAll(conns, memoryPatience, func(i int) []byte {
					if i%2 == 0 {
						return nil
					}
					return bytes.Repeat([]byte("GET / HTTP/1.1\r\nHost: 10.77.0.1:8080\r\n\r\n"), 100)
				})
				time.Sleep(a.window)
				a.note("%d connections", len(conns))
				for _, conn := range conns {
					conn.Close()
				}
			})
		},
	},
	{
		name:  "the page, as fast as it goes",
		does:  "asks for the status page and the metrics over 32 connections",
		holds: "others are served",
		also:  kinds{race},
		run: func(a *assault) {
			a.beside(func() {
				until := time.Now().Add(a.window)
				var wg sync.WaitGroup
				var n atomic.Int64
				for i := range 32 {
					wg.Go(func() {
						client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
						defer client.CloseIdleConnections()
						for time.Now().Before(until) {
							path := []string{"/", "/metrics", "/readyz", "/healthz", "/?filter=" + strconv.FormatInt(n.Load(), 10), "/volume/prey"}[i%6]
							if resp, err := client.Get("http://" + httpAddress + path); err == nil {
								_, _ = io.Copy(io.Discard, resp.Body)
								resp.Body.Close()
								n.Add(1)
							}
						}
					})
				}
				wg.Wait()
				a.note("%d pages", n.Load())
			})
		},
	},
	{
		name:  "a disk that hangs",
		does:  "freezes the disk and asks for /readyz hundreds of times, for the page and the metrics meanwhile",
		holds: "not ready within seconds, the page and the metrics are there, threads stay within their bound, and it is ready again with the disk",
		run: func(a *assault) {
			thaw := a.disk.freeze()
			frozen := true
			defer func() {
				if frozen {
					thaw()
				}
			}()
			conns := a.httpConns(600)
			sendAll(conns, memoryPatience, func(int) []byte {
				return []byte("GET /readyz HTTP/1.1\r\nHost: 10.77.0.1:8080\r\n\r\n")
			})
			time.Sleep(a.window)
			begin := time.Now()
			// Clients are answered for 5 seconds after the last write that worked, and so long it is ready.
			eventually(a, 14*time.Second, "ready with a disk that hangs", func() bool { return ready(15*time.Second) != nil })
			a.note("not ready after %s", short(time.Since(begin)))
			client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for _, path := range []string{"/", "/metrics"} {
				begin := time.Now()
				resp, err := client.Get("http://" + httpAddress + path)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if err != nil {
					a.Errorf("%s while the disk hangs: %v", path, err)
				}
				a.note("%s took %s", path, short(time.Since(begin)))
			}
			for _, conn := range conns {
				conn.Close()
			}
			ctx, cancel := context.WithTimeout(a.ctx, 20*time.Second)
			defer cancel()
			begin = time.Now()
			out, err := exec.CommandContext(ctx, *podnas, "doctor", "--root="+a.server.root).CombinedOutput()
			if ctx.Err() != nil || err == nil || !strings.Contains(string(out), "disk") {
				a.Errorf("podnas doctor while the disk hangs: %v\n%s", err, out)
			}
			a.note("doctor took %s, %d threads", short(time.Since(begin)), a.server.usage().threads)
			thaw()
			frozen = false
			eventually(a, 30*time.Second, "not ready again", func() bool { return ready(time.Second) == nil })
		},
	},
	{
		name:  "a page asked for by another name",
		does:  "asks for the page with the Host of another site, as a browser would whose name server lies",
		holds: "it is refused; by address it is answered",
		run: func(a *assault) {
			for host, want := range map[string]bool{httpAddress: true, "127.0.0.1:8080": true, "localhost:8080": true, "evil.example.com": false, "evil.example.com:8080": false} {
				req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "http://"+httpAddress+"/", nil)
				must(a, err)
				req.Host = host
				resp, err := http.DefaultClient.Do(req)
				must(a, err)
				resp.Body.Close()
				if got := resp.StatusCode == http.StatusOK; got != want {
					a.Errorf("Host: %s: %s", host, resp.Status)
				}
			}
		},
	},
	{
		name:  "requests that are none",
		does:  "random and mutated requests to the HTTP port",
		holds: "others are served",
		run: func(a *assault) {
			a.beside(func() {
				until := time.Now().Add(a.window)
				n := 0
				for ; time.Now().Before(until); n++ {
					conn, err := net.Dial("tcp", httpAddress)
					if err != nil {
						continue
					}
					raw := fmt.Appendf(nil, "%s %s HTTP/1.%d\r\nHost: %s\r\nContent-Length: %d\r\nTransfer-Encoding: %s\r\nConnection: %s\r\n\r\n",
						[]string{"GET", "POST", "CONNECT", "HEAD", "OPTIONS", "PRI"}[a.rng.IntN(6)], []string{"/", "/readyz", "*", "//..", "/metrics?a=%00"}[a.rng.IntN(5)],
						a.rng.IntN(3), httpAddress, a.rng.Uint64(), []string{"chunked", "identity", ""}[a.rng.IntN(3)], []string{"Upgrade", "close", "keep-alive"}[a.rng.IntN(3)])
					for range a.rng.IntN(4) {
						raw[a.rng.IntN(len(raw))] ^= 1 << a.rng.IntN(8)
					}
					_, _ = conn.Write(raw) // the server may have closed it
					_ = conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
					_, _ = bufio.NewReader(conn).ReadByte() // whatever it says
					conn.Close()
				}
				a.note("%d requests", n)
			})
		},
	},
}

// httpConns are connections to the HTTP port, as many of them as there may be.
func (a *assault) httpConns(n int) []net.Conn {
	a.Helper()
	return a.dialMany(n, func(ctx context.Context, i int) (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(mallory(i / 500))}}
		return dialer.DialContext(ctx, "tcp", httpAddress)
	})
}
