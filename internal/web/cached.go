package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/latest"
)

const (
	// cacheAge is how old an answer may be.
	cacheAge = time.Second
	// answerLate is the timeout for generating an answer. Prometheus waits for 10
	// seconds.
	answerLate = 8 * time.Second
)

// Cached answers all requests with one answer of h, which it renews if a request finds
// it a second old. h gets a plain GET. Slow readers share one copy, and if h hangs, it
// hangs only once.
func Cached(h http.Handler) http.Handler {
	answers := latest.New(answerLate, func(ctx context.Context) (*answer, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		if err != nil {
			return nil, err
		}
		a := newAnswer()
		h.ServeHTTP(a, r)
		if err := a.pack(); err != nil {
			return nil, err
		}
		return a, nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := answers.Get(r.Context(), cacheAge)
		if err != nil {
			http.Error(w, "this page can't be generated: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		a.send(w, r)
	})
}

// answer is a handler's output.
type answer struct {
	header       http.Header
	status       int
	body, packed bytes.Buffer
}

func newAnswer() *answer { return &answer{header: http.Header{}, status: http.StatusOK} }

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (a *answer) pack() error {
	z := gzip.NewWriter(&a.packed)
	if _, err := z.Write(a.body.Bytes()); err != nil {
		return err
	}
	return z.Close()
}

// send writes the answer to a client.
func (a *answer) send(w http.ResponseWriter, r *http.Request) {
	body := a.body.Bytes()
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		body = a.packed.Bytes()
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // the client may be gone
}

// acceptsGzip reads Accept-Encoding, RFC 9110 section 12.5.3. A client that gives gzip a
// quality, which may be 0, gets the plain answer.
func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(encoding) == "gzip" {
			return true
		}
	}
	return false
}
