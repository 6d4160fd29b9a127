package web

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
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
