package web

import "net/http"

// Each generates an answer per request, for requests of too many kinds to be Cached. It
// handles at most that many at a time, and generates one at a time: a slow reader keeps
// a copy, and further requests get "try again".
func Each(most int, h http.Handler) http.Handler {
	answering, making := make(chan struct{}, most), make(chan struct{}, 1)
	one := func(r *http.Request) (*answer, error) {
		making <- struct{}{}
		defer func() { <-making }()
		return newAnswer(h, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case answering <- struct{}{}:
			defer func() { <-answering }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at a time, try again", http.StatusServiceUnavailable)
			return
		}
		a, err := one(r)
		if err != nil {
			http.Error(w, "this page can't be generated: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		a.send(w, r)
	})
}
