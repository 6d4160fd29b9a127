package status

import (
	"context"
	"embed"
	"net/http"
	"time"

	g "maragu.dev/gomponents"

	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/web"
)

//go:embed assets
var assets embed.FS

// policy lets the page load its own files and reload itself, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const (
	// viewAge is how old the data of a page may be, and viewLate the time limit for
	// collecting it.
	viewAge  = time.Second
	viewLate = 8 * time.Second
	// eachMax limits concurrent requests for pages that are not the same for everybody.
	eachMax = 16
)

// Handler serves the page at /, a volume's page at /volume/NAME, and the files of both. It
// changes nothing, and refuses methods other than GET and HEAD. The data is collected at
// most once a second, for all pages.
func (s *Status) Handler() http.Handler {
	views := latest.New(viewLate, func(ctx context.Context) (*page, error) { return s.view(ctx, time.Now()), nil })
	answer := func(build func(*http.Request, *page) (int, g.Node)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, err := views.Get(r.Context(), viewAge)
			if err != nil {
				http.Error(w, "the page can't be generated: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
			status, document := build(r, p)
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			_ = document.Render(w) // it is written to memory
		})
	}
	overview := answer(func(r *http.Request, p *page) (int, g.Node) { return http.StatusOK, overviewPage(p, filterOf(r)) })
	volume := answer(func(r *http.Request, p *page) (int, g.Node) { return s.volumePage(r.Context(), p, r.PathValue("name")) })
	same, filtered := web.Cached(overview), web.Each(eachMax, overview)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if filterOf(r) == "" {
			same.ServeHTTP(w, r)
			return
		}
		filtered.ServeHTTP(w, r)
	})
	mux.Handle("GET /volume/{name}", web.Each(eachMax, volume))
	for _, name := range []string{"page.css", "page.js", "icon.svg", "idiomorph/idiomorph.min.js", "idiomorph/LICENSE"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, assets, "assets/"+name)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}
