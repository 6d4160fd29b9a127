package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
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
		return newAnswer(h, r)
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

// answer is a handler's output. It is kept compressed alone: with thousands of volumes it is ten times as large otherwise, and each reader
// that is slow keeps the one of its second.
type answer struct {
	header http.Header
	status int
	size   int // of what is packed
	packed bytes.Buffer
	packer *gzip.Writer
}

func newAnswer(h http.Handler, r *http.Request) (*answer, error) {
	a := &answer{header: http.Header{}, status: http.StatusOK}
	a.packer = gzip.NewWriter(&a.packed)
	h.ServeHTTP(a, r)
	err := a.packer.Close()
	a.packer = nil // it is larger than most answers
	return a, err
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(p []byte) (int, error) {
	a.size += len(p)
	return a.packer.Write(p)
}

// send writes the answer to a client, which may be gone.
func (a *answer) send(w http.ResponseWriter, r *http.Request) {
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(a.packed.Len()))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.packed.Bytes())
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.size))
	w.WriteHeader(a.status)
	if body, err := gzip.NewReader(bytes.NewReader(a.packed.Bytes())); err == nil { // it was packed here
		_, _ = io.Copy(w, body)
	}
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
