package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume"
)

// A disk that has lost its identity is not served under another one, unless a person says so, and with the one that it
// had its claims have their volumes.
func TestServeWithoutIdentity(t *testing.T) {
	a := newAppliance(t)
	name := a.claim("1Mi")
	identity, err := volume.IdentityOf(a.root)
	mustDo(t, err)
	a.stop()
	mustDo(t, os.Remove(filepath.Join(a.root, volume.InstanceFile)))

	serve := []string{"serve", "--standalone", "--root=" + a.root, "--claims=" + a.claims, "--listen=" + a.nfs, "--http=" + a.http}
	for _, flags := range [][]string{nil, {"--new-disk"}} {
		_, _, err := podnas(t.Context(), append(serve, flags...)...)
		if err == nil || !strings.Contains(err.Error(), "--new-identity=UUID") || !strings.Contains(err.Error(), identity) {
			t.Errorf("%v: %v, want what to do", flags, err)
		}
	}
	if _, _, err := podnas(t.Context(), append(serve, "--new-identity=x")...); exitCode(err) != exitUsage {
		t.Errorf("an identity that is none: %v", err)
	}
	a.start("--new-identity=" + identity)
	a.well()
	a.until("the volume is served", func() string {
		out, _, _ := podnas(t.Context(), "volume", "list", "--root="+a.root)
		return out
	}, name, volume.Ready)
	if now, err := volume.IdentityOf(a.root); err != nil || now != identity {
		t.Errorf("it is %s, %v, and was %s", now, err, identity)
	}
}
