package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Hosts refuses requests with a Host that is not podnas's, so that no web site can point
// its own name to podnas's address (DNS rebinding) and read podnas's pages in a visitor's
// browser. A browser always sends the name that it has looked up, which is the site's for
// the site's pages.
//
// IP addresses, localhost, names without a dot and names of a cluster's own DNS are always
// accepted: kubelet, Prometheus, kubectl port-forward and Services use them, and no web
// site has such a name. further are other names, such as that of an Ingress.
func Hosts(h http.Handler, further []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := hostName(r.Host); !known(name, further) {
			http.Error(w, fmt.Sprintf("podnas does not know the host %q, and refuses requests for unknown hosts to protect browsers. "+
				"If this is podnas's name, start it with --http-host=%[1]s", name), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func known(name string, further []string) bool {
	if name == "" || !strings.Contains(name, ".") && !strings.Contains(name, ":") {
		return true // HTTP/1.0 sends none
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".cluster.local") ||
		slices.ContainsFunc(further, func(f string) bool { return strings.EqualFold(strings.TrimSuffix(f, "."), name) })
}

// hostName removes the port from a Host header (RFC 9110 section 7.2), the brackets from
// an IPv6 address, and the dot from the end of a name.
func hostName(host string) string {
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:at]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
