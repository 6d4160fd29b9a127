package export

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// As long as a change of a file is under way, what is remembered of it is not used, and what is
// read of it is not remembered: it may be from before.
func TestAttrsDuringChange(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	top, err := o.Open(netip.Addr{}, root, UseAttr)
	mustDo(t, err)
	defer top.Close()
	if !o.remembers(top.Volume) {
		t.Skip("no attributes are remembered on this disk")
	}
	time.Sleep(2 * tickMax)
	_, handle, err := top.Describe([]byte("f"), nil)
	mustDo(t, err)
	look := func() (remembered bool) {
		t.Helper()
		before := o.handles.counts().Attrs
		f, err := o.Look(netip.Addr{}, handle)
		mustDo(t, err)
		if f == nil { // it is not open yet
			f, err = o.Open(netip.Addr{}, handle, UseAttr)
			mustDo(t, err)
		}
		f.Close()
		return o.handles.counts().Attrs > before
	}
	look()
	look()
	if !look() {
		t.Fatal("not remembered")
	}
	f, err := o.Open(netip.Addr{}, handle, UseAttr)
	mustDo(t, err)
	defer f.Close()
	first, second := f.beginChange(), f.beginChange()
	for _, when := range []string{"during two changes", "again"} {
		if look() {
			t.Error("remembered " + when)
		}
	}
	first.end()
	for _, when := range []string{"during the other", "again"} {
		if look() {
			t.Error("remembered " + when)
		}
	}
	second.end()
	if look() {
		t.Error("remembered from before")
	}
	if !look() {
		t.Error("not remembered afterwards")
	}
}

// The cache takes at most 20 MiB: docs/performance.md has the size of an entry.
func TestAttrsMemory(t *testing.T) {
	const entries = 10_000
	used := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	var h handles
	d := described{sec: 1}
	h.put(&d, nil) // the sets are there
	handle := make([]byte, 24)
	before := used()
	for i := range uint64(entries) {
		d.ino = i
		h.put(&d, handle)
		h.get(&d).attrs.Store(&cachedAttrs{})
	}
	each := (used() - before) / entries
	t.Logf("%d bytes an entry", each)
	if most := each * setRuns * setRun * setWays; each > 320 || most > 20<<20 {
		t.Errorf("%d bytes an entry, %d bytes in all", each, most)
	}
}

// A directory in which names are looked up is not looked at each time, the root too, until a client changes
// it or its attributes are too old.
func TestOpenToLookUp(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	time.Sleep(2 * tickMax)
	for name, handle := range map[string][]byte{"root": root, "another": handleOf(t, o, root, "d")} {
		at := dir
		if name != "root" {
			at = filepath.Join(dir, "d")
		}
		mode := func() uint32 {
			t.Helper()
			f, err := o.OpenToLookUp(netip.Addr{}, handle)
			mustDo(t, err)
			defer f.Close()
			if !o.remembers(f.Volume) || !f.Volume.births {
				t.Skip("no attributes are remembered on this disk")
			}
			if _, err := f.Lookup([]byte("none")); err == nil {
				t.Error("a name that is not there was found")
			}
			return f.Attr.Mode & 0o777
		}
		mustDo(t, os.Chmod(at, 0o711))
		time.Sleep(attrsKept + 2*tickMax)
		mode() // it is open now, and remembered
		mustDo(t, os.Chmod(at, 0o755))
		if got := mode(); got != 0o711 {
			t.Errorf("%s: mode %o: it was looked at again", name, got)
		}
		f, err := o.Open(netip.Addr{}, handle, UseAttr)
		mustDo(t, err)
		mustDo(t, f.Chmod(0o700))
		f.Close()
		if got := mode(); got != 0o700 {
			t.Errorf("%s: mode %o after a client's change", name, got)
		}
		time.Sleep(2 * tickMax)
		mode()
		mustDo(t, os.Chmod(at, 0o755))
		time.Sleep(attrsKept)
		if got := mode(); got != 0o755 {
			t.Errorf("%s: mode %o a second after a change on the disk", name, got)
		}
	}
}
