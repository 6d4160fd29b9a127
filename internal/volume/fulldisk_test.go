package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/test/testdisk"
)

// On a disk that clients fill without a pause, podnas starts, and deletes, archives and retains volumes.
func TestFullDisk(t *testing.T) {
	for _, what := range []string{"blocks", "inodes"} {
		t.Run(what, func(t *testing.T) {
			testdisk.Small(t, func(t *testing.T, disk string) {
				s, _ := open(t, disk)
				for _, name := range []string{"a", "b", "c"} {
					for onDelete, of := range map[OnDelete]string{DeleteFiles: "deleted-", ArchiveFiles: "archived-", RetainFiles: "retained-"} {
						_, err := s.Create(t.Context(), Spec{Name: of + name, Size: 1 << 20, OnDelete: onDelete})
						mustDo(t, err)
					}
				}
				_, err := s.Create(t.Context(), Spec{Name: "filled", Size: 1 << 20})
				mustDo(t, err)
				eventually(t, "there is a reserve", func() bool {
					_, err := os.Stat(filepath.Join(disk, ReserveDir, "large-15"))
					return err == nil
				})
				time.Sleep(100 * time.Millisecond) // it is synced
				testdisk.Fill(t, filepath.Join(disk, "filled"), what == "inodes")
				mustDo(t, s.Close())
				s, _ = open(t, disk)
				for _, name := range []string{"a", "b", "c"} {
					for _, of := range []string{"archived-", "retained-", "deleted-"} {
						if err := s.Delete(t.Context(), of+name); err != nil {
							t.Fatal(err)
						}
					}
				}
				mustDo(t, s.Close())
				s, _ = open(t, disk)
				kept, err := s.Kept()
				if err != nil || len(kept) != 6 {
					t.Errorf("kept %v, %v", kept, err)
				}
				if left := s.List(); len(left) != 1 || left[0].Name != "filled" {
					t.Errorf("there are %v", left)
				}
				eventually(t, "the trash is empty", func() bool {
					entries, err := os.ReadDir(filepath.Join(disk, trashDir))
					return err == nil && len(entries) == 0
				})
				if _, err := os.Stat(filepath.Join(disk, "deleted-a")); !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
				mustDo(t, s.Close())
			})
		})
	}
}
