package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestEach(t *testing.T) {
	const most = 4
	var atWork, inAll atomic.Int32
	hold := make(chan struct{})
	h := Each(most, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := atWork.Add(1); n > 1 {
			t.Errorf("%d are made at a time", n)
		}
		<-hold
		inAll.Add(1)
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, r.URL)
		atWork.Add(-1)
	}))
	ask := func(url string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))
		return w
	}
	var asking sync.WaitGroup
	var refused atomic.Int32
	refusals := make(chan struct{}, 10*most)
	for n := range 10 * most {
		asking.Go(func() {
			url := fmt.Sprint("/a?filter=", n)
			switch w := ask(url); {
			case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "":
				refused.Add(1)
				refusals <- struct{}{}
			case w.Code != http.StatusNotFound || w.Body.String() != url:
				t.Errorf("%s: %d, %s", url, w.Code, w.Body)
			}
		})
	}
	for range 9 * most { // they don't wait for those that are answered
		<-refusals
	}
	close(hold)
	asking.Wait()
	if refused.Load() != 9*most || inAll.Load() != most {
		t.Errorf("%d were refused, %d answered", refused.Load(), inAll.Load())
	}
}

// Clients that read no answer keep nobody from one, and don't have that of a client with fewer cut off.
func TestEachSlowReaders(t *testing.T) {
	t.Parallel()
	const most = 4
	page := strings.Repeat("<tr><td>volume</td></tr>\n", 30_000) // more than the kernel's buffers
	var made atomic.Int32
	address := startServer(t, Each(most, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, page)
		made.Add(1)
	})), 512, 64)
	ask := func(from string) net.Conn {
		before := made.Load()
		c := dialFrom(t, from, address)
		if _, err := io.WriteString(c, "GET /volume/x HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(3 * time.Second); made.Load() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("not answered")
			}
		}
		time.Sleep(20 * time.Millisecond) // it reads what was made
		return c
	}
	patient := ask("127.0.0.2") // the oldest
	var others []net.Conn
	for range most + 1 {
		others = append(others, ask("127.0.0.3"))
	}
	all := func(c net.Conn) error {
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err == nil && string(body) != page {
			return fmt.Errorf("status %d, %d bytes", r.StatusCode, len(body))
		}
		return err
	}
	for what, c := range map[string]net.Conn{"another client": ask("127.0.0.4"), "the patient one": patient, "the last": others[len(others)-1]} {
		if err := all(c); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all(others[0]) == nil {
		t.Error("too many have their answers")
	}
}

// A handler that panics holds nobody up.
func TestEachPanics(t *testing.T) {
	h := Each(1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("as asked")
		}
		_, _ = io.WriteString(w, "fine")
	}))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/panic", http.NoBody))
	}()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusOK || w.Body.String() != "fine" {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}
