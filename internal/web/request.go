package web

import "net/http"

// ReadOnly refuses requests that would change something, and bodies, which would be
// read for nothing.
func ReadOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			w.Header().Set("Connection", "close")
			http.Error(w, "this is read-only: use GET", http.StatusMethodNotAllowed)
		case r.ContentLength != 0:
			w.Header().Set("Connection", "close")
			http.Error(w, "a request must not have a body", http.StatusRequestEntityTooLarge)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
