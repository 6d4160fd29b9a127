//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/podnas/podnas/test/testdisk"
)

// VolumeSnapshots that are deleted before they are ready leave nothing, whoever is away meanwhile. A foreign one, of a claim that is not
// there, is no failure of podnas.
func TestVolumeSnapshotsDeletedAtOnce(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		snapshotController(t)
		n := newTenant(t)
		s := newSnapshots(t, n)
		p := podnasOn(t, disk, n.provisioner)
		n.claim("data", n.class("", nil), "64Mi", nil)
		v := n.bound("data")
		for i := range 2000 {
			if err := os.WriteFile(filepath.Join(p.root, v.Name, fmt.Sprint(i)), []byte("data"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		class := s.snapshotClass("", "Delete", false)
		s.snapshot("stays", class, "data")
		handle, _ := s.ready(s.name, "stays")
		s.snapshot("foreign", "", "nothing")

		const each = 10
		left := func() string {
			out, errs, code := p.run("snapshot", "list", v.Name, "-o", "name")
			if code != 0 {
				return errs
			}
			list, err := s.api.Resource(contentsResource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for i := range list.Items {
				if driver, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "driver"); driver == s.provisioner {
					out += " " + list.Items[i].GetName()
				}
			}
			return strings.Join(strings.Fields(out), " ")
		}
		uid := handle[strings.LastIndex(handle, "/")+1:]
		want := uid + " snapcontent-" + uid
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
				for i := range each {
					name := fmt.Sprintf("gone-%d-%v", i, killed)
					s.snapshot(name, class, "data")
					time.Sleep(time.Duration(i) * 15 * time.Millisecond) // before its moment, and after
					if killed {
						p.kill()
					}
					s.delete(name)
					if killed {
						p.start()
					}
				}
				for began := time.Now(); left() != want && time.Since(began) < time.Minute; {
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(2 * time.Second) // what comes later
				if got := left(); got != want {
					t.Errorf("there are %s, want %s", got, want)
				}
			})
		}
		results, _ := p.doctor()
		for _, r := range results {
			if strings.Contains(r.Check, "foreign") {
				t.Errorf("the doctor says %+v", r)
			}
		}
	})
}
