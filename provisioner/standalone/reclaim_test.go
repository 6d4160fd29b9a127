package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A volume ends some time after its claim, which is told beforehand and can be taken
// back.
func TestGrace(t *testing.T) {
	b := newBench(t)
	b.Grace = time.Hour
	b.write("data.yaml", claimYAML("data", "storageClassName: explicit", "1Mi"))
	b.write("explicit.yaml", strings.NewReplacer("name: keep", "name: explicit", "Retain", "Delete").Replace(strings.Split(classes, "---")[1]))
	b.scans(1)
	name := b.pvs()["data"].Name
	b.remove("data.yaml")
	b.scans(5)
	if n := strings.Count(b.out.String(), "claim default/data is gone"); n != 1 || !strings.Contains(b.out.String(), "in 1h0m0s its volume "+name+" is deleted: its files are removed in the background") {
		t.Errorf("told %d times:\n%s", n, &b.out)
	}
	if _, err := b.store.Get(name); err != nil {
		t.Fatalf("within the time: %v", err)
	}
	b.write("data.yaml", claimYAML("data", "storageClassName: explicit", "1Mi"))
	b.scans(2)
	if n := strings.Count(b.out.String(), "claim default/data is back"); n != 1 {
		t.Errorf("that it is back is told %d times", n)
	}

	// The time begins anew, and a broken file holds it up.
	b.remove("data.yaml")
	b.scans(2)
	b.write("broken.yaml", "kind: [broken")
	b.scans(2)
	b.Grace = 0
	b.scans(5)
	if _, err := b.store.Get(name); err != nil {
		t.Fatalf("with a broken file: %v", err)
	}
	b.Grace = time.Hour
	b.remove("broken.yaml")
	b.scans(2)
	if _, err := b.store.Get(name); err != nil {
		t.Fatalf("the time has not begun anew: %v", err)
	}
	b.Grace = 0
	b.scans(2)
	if _, err := b.store.Get(name); err == nil || len(b.pvs()) != 0 {
		t.Errorf("the volume is still there: %v", b.pvs())
	}
}

// What no class has asked to be deleted can be brought back.
func TestArchivedByDefault(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	name := b.pvs()["data"].Name
	if err := os.WriteFile(filepath.Join(b.Root, name, "file"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.remove("data.yaml")
	b.scans(3)
	kept, err := b.store.Kept()
	if err != nil || len(kept) != 1 || kept[0].Name != name {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	if !strings.Contains(b.out.String(), "podnas volume adopt "+name) {
		t.Errorf("not told how to bring it back:\n%s", &b.out)
	}
}
