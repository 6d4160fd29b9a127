package web

import "net/http"

// Each answers each request by itself, for what is asked for in too many ways to be
// Cached. At most so many are answered at a time, of which one is being made: who reads
// slowly holds a copy, and who comes then is told to come again.
func Each(most int, h http.Handler) http.Handler {
	answering, making := make(chan struct{}, most), make(chan struct{}, 1)
	one := func(r *http.Request) (*answer, error) {
		making <- struct{}{}
		defer func() { <-making }()
		a := newAnswer()
		h.ServeHTTP(a, r)
		err := a.pack()
		return a, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case answering <- struct{}{}:
			defer func() { <-answering }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many ask at a time, try again", http.StatusServiceUnavailable)
			return
		}
		a, err := one(r)
		if err != nil {
			http.Error(w, "this can't be put together: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		a.send(w, r)
	})
}
