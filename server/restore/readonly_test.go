package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

// A volume that its clients may not change is restored as any other one, and they may not change it afterwards.
func TestRestoreReadOnly(t *testing.T) {
	v := newVolumeWith(t, testdisk.OneXFS(t), exports.Options{ReadOnly: true})
	in := func(name string) string { return filepath.Join(v.dir, name) }
	must(t, errors.Join(os.Mkdir(in("d"), 0o755), os.WriteFile(in("d/f"), []byte("before"), 0o644), os.WriteFile(in("gone"), nil, 0o644)))
	v.walked()
	want := describe(t, v.dir)
	v.take(t, "one")
	must(t, errors.Join(os.WriteFile(in("d/f"), []byte("after, and longer"), 0o600), os.Remove(in("gone")),
		os.Mkdir(in("new"), 0o755), os.WriteFile(in("new/f"), nil, 0o644)))
	v.walked()
	must(t, v.restore(t, t.Context(), "one"))
	if got := describe(t, v.dir); got != want {
		t.Errorf("it has\n%s\nwant\n%s", got, want)
	}
	if f, err := v.opener.OpenIn(v.Volume, *v.Files.RootID(), inode.UseNames); !errors.Is(err, exports.ErrReadOnly) {
		if err == nil {
			f.Close()
		}
		t.Errorf("opened to be changed: %v", err)
	}
}
