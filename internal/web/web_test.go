package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHosts(t *testing.T) {
	h := Hosts(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{"nas.example.com", "Other.example.com."})
	for host, code := range map[string]int{
		"": 200, "10.0.0.1": 200, "10.0.0.1:8080": 200, "[fd00::1]": 200, "[fd00::1]:8080": 200, "[fe80::1%25eth0]:80": 200,
		"localhost": 200, "localhost:49152": 200, "LOCALHOST.": 200, "pod.localhost": 200,
		"podnas": 200, "podnas:8080": 200, "podnas-0": 200,
		"podnas.podnas.svc": 200, "podnas.podnas.svc:8080": 200, "podnas.podnas.svc.cluster.local.": 200, "10-0-0-1.podnas.pod.cluster.local": 200,
		"nas.example.com": 200, "NAS.example.com.:443": 200, "other.example.com": 200,

		"evil.example.com": 421, "evil.example.com:8080": 421, "nas.example.com.evil.example": 421, "podnas.podnas": 421,
		"10.0.0.1.evil.example": 421, "localhost.evil.example": 421, "podnas.podnas.svc.evil.example": 421, "cluster.local.evil.example": 421,
		"evilcluster.local": 421, "10.0.0.1.": 200, "10.0.0.256": 421, "a:b:c": 421,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Host = host
		h.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%q: %d, want %d", host, w.Code, code)
		}
		if w.Code != http.StatusOK && !strings.Contains(w.Body.String(), "--http-host=") {
			t.Errorf("%q: it is not said what to do: %q", host, w.Body)
		}
	}
}

// An answer is made once a second, and shared, as it is and packed.
func TestCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, hang := 0, make(chan struct{})
		close(hang)
		h := Cached(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-hang
			made++
			w.Header().Set("Content-Type", "text/x-test")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.Method, r.URL, len(r.Header), " ", made)
		}))
		ask := func(encoding string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/any?thing", http.NoBody)
			r.Header.Set("Accept-Encoding", encoding)
			h.ServeHTTP(w, r)
			return w
		}
		for _, tt := range []struct {
			wait     time.Duration
			encoding string
			packed   bool
			want     string
		}{
			{0, "", false, "GET/ 0 1"},
			{time.Second, "br, gzip", true, "GET/ 0 1"},
			{0, "gzip;q=0", false, "GET/ 0 1"},
			{1, "identity", false, "GET/ 0 2"},
		} {
			time.Sleep(tt.wait)
			w := ask(tt.encoding)
			body := io.Reader(w.Body)
			if tt.packed {
				var err error
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			text, err := io.ReadAll(body)
			if err != nil || string(text) != tt.want || w.Code != http.StatusTeapot || w.Header().Get("Content-Type") != "text/x-test" ||
				(w.Header().Get("Content-Encoding") == "gzip") != tt.packed {
				t.Errorf("%+v: %d, %q, %v, %v", tt, w.Code, text, w.Header(), err)
			}
		}

		time.Sleep(2 * time.Second)
		hang = make(chan struct{})
		begin := time.Now()
		var asking sync.WaitGroup
		for range 100 {
			asking.Go(func() {
				if w := ask(""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no answer for 8s") {
					t.Errorf("while it hangs: %d, %q", w.Code, w.Body)
				}
			})
		}
		asking.Wait()
		if took := time.Since(begin); took != answerLate {
			t.Errorf("they were told after %s", took)
		}
		close(hang)
		synctest.Wait()
		if w := ask(""); w.Body.String() != "GET/ 0 4" { // that one hung
			t.Errorf("later: %q", w.Body)
		}
	})
}

func TestReadOnly(t *testing.T) {
	h := ReadOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		method, body string
		code         int
	}{
		{"GET", "", 200}, {"HEAD", "", 200}, {"POST", "", 405}, {"PUT", "x", 405}, {"OPTIONS", "", 405}, {"TRACE", "", 405}, {"CONNECT", "", 405}, {"GET", "x", 413},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, "/", strings.NewReader(tt.body)))
		if w.Code != tt.code {
			t.Errorf("%+v: %d", tt, w.Code)
		}
	}
}

func TestClientOf(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1", "[::ffff:10.0.0.1]:1": "10.0.0.1",
		"[fd00:1:2:3:4::5]:1": "fd00:1:2:3::", "[fe80::1%eth0]:1": "fe80::",
	} {
		got := clientOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)))
		if got.String() != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if clientOf(&net.UnixAddr{Name: "@", Net: "unix"}).IsValid() {
		t.Error("a Unix socket has an address")
	}
}

// Of whom a connection is taken when there are too many.
func TestWhoGoes(t *testing.T) {
	var c [6]*conn
	l := newListener(nil, 4, 3)
	come := func(i int, client string) int {
		c[i] = &conn{listener: l, client: netip.MustParseAddr(client)}
		gone := l.add(c[i])
		for n := range c {
			if gone != nil && c[n] == gone {
				return n
			}
		}
		return -1
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: number %d goes, want %d", what, got, want)
		}
	}
	expect("room", come(0, "10.0.0.1"), -1)
	expect("room", come(1, "10.0.0.1"), -1)
	expect("room", come(2, "10.0.0.2"), -1)
	expect("the last room", come(3, "10.0.0.1"), -1)
	c[0].answering.Store(true)
	expect("its own client's, that waits", come(4, "10.0.0.1"), 1)
	c[3].answering.Store(true)
	c[4].answering.Store(true)
	expect("the one with the most, all of which are answered", come(5, "10.0.0.3"), 0)
	// Now 2, 3, 4, 5 are open.
	l.removeLocked(c[4])
	l.removeLocked(c[4]) // as Close may be called twice
	expect("room again", come(4, "10.0.0.4"), -1)
	expect("of four with one each, that which came first", come(0, "10.0.0.5"), 2)
	for _, one := range c {
		l.removeLocked(one)
	}
	if l.open != 0 || len(l.clients) != 0 {
		t.Errorf("%d are left of %v", l.open, l.clients)
	}
}

// startServer serves within small limits until the test ends.
func startServer(t *testing.T, handler http.Handler, conns, clientConns int) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	s := &Server{Handler: handler, HeaderMax: 8 << 10, Write: 5 * time.Second, Conns: conns, ClientConns: clientConns, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func probe(t *testing.T, from, to string) error {
	t.Helper()
	c := dialFrom(t, from, to)
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", r.StatusCode)
	}
	return nil
}

// However clients hold connections, somebody with an ordinary request gets in, also
// from the attacker's own address, and what is open is bounded.
func TestHeldConnections(t *testing.T) {
	const conns, clientConns = 40, 10
	var open, most atomic.Int64
	big := bytes.Repeat([]byte("x"), 8<<20)
	address := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), open.Add(1)))
		defer open.Add(-1)
		if r.URL.Path == "/big" {
			_, _ = w.Write(big)
		}
	}), conns, clientConns)
	for _, tt := range []struct{ name, sends string }{
		{"nothing is sent", ""},
		{"half a header", "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", 4000)},
		{"kept alive", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"an answer that is not read", "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range 3 * conns {
				c := dialFrom(t, fmt.Sprintf("127.0.1.%d", 1+i%9), address)
				_, _ = io.WriteString(c, tt.sends) // it may be closed already
				if i%10 == 0 {
					for _, from := range []string{"127.0.0.1", "127.0.1.1"} {
						if err := probe(t, from, address); err != nil {
							t.Errorf("a probe from %s beside %d connections: %v", from, i, err)
						}
					}
				}
			}
		})
	}
	if n := most.Load(); n > conns+clientConns { // some that were closed are still ending
		t.Errorf("%d requests were under way at a time, of %d connections", n, conns)
	}
}

// A header that does not end is refused long before it takes much memory.
func TestLargeHeader(t *testing.T) {
	c := dialFrom(t, "127.0.0.1", startServer(t, http.NotFoundHandler(), 10, 10))
	go func() { // it is cut off
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 14<<10))
	}()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", r.StatusCode)
	}
}
