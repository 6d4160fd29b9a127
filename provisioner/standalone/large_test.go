//go:build !race

package standalone

import (
	"strings"
	"testing"
	"time"
)

// A list of thousands of claims is read, and unchanged it costs nothing more.
func TestLargeFile(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.write("claims.yaml", object("one", "1Mi"))
	b.scans(1)
	before := b.fill("one")
	text := strings.Builder{}
	text.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	text.WriteString(indented(object("one", "1Mi")))
	secret := indented("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: " + strings.Repeat("x", 10000) + "}\n")
	for range 1000 {
		text.WriteString(secret)
	}
	text.WriteString(indented(object("two", "1Mi")))
	b.write("claims.yaml", text.String())
	began := time.Now()
	b.scans(1)
	t.Logf("read in %s", time.Since(began))
	before["two"] = b.fill("two")["two"]
	b.checkFilled(before)
	b.checkRefused("claims.yaml", "")
}
