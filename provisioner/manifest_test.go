package provisioner

import (
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
)

// The mount options that somebody has given a PersistentVolume are noted, so that they are the same when it is written again. What podnas
// has given it is not: the server may be elsewhere then.
func TestNoteMountOptions(t *testing.T) {
	p, _ := newProvisioner(t)
	address := Address{IP: netip.MustParseAddr("10.96.0.9"), Port: 2049}
	three := []string{"nfsvers=3", "proto=tcp", "port=2049", "mountport=2049", "mountproto=tcp", "mountvers=3", "nolock", "hard"}
	for _, tt := range []struct {
		name    string
		noted   []string // in the record
		options []string // nil: podnas's
		want    []string // nil: what is noted
		version string
	}{
		{"podnas's own", []string{"nfsvers=4.2", "hard"}, nil, nil, "4.2"},
		{"podnas's own of version 3", []string{"timeo=100", "retrans=2"}, nil, nil, "3"},
		{"podnas's own, in another order", []string{"nfsvers=4.2", "hard"}, []string{"hard", "nfsvers=4.2,port=2049", "proto=tcp"}, nil, "4.2"},
		{"of another address", []string{"nfsvers=4.2"}, []string{"proto=tcp6", "port=30049", "nfsvers=4.2"}, nil, "4.2"},
		{"a version of 4", []string{"nfsvers=4.2", "hard"}, []string{"proto=tcp", "port=2049", "nfsvers=4.1", "hard"}, []string{"nfsvers=4.1", "hard"}, "4.1"},
		{"version 3", []string{"nfsvers=4.2", "hard"}, three, []string{"nfsvers=3", "mountvers=3", "nolock", "hard"}, "3"},
		{"by a port of the class", []string{"nfsvers=4.2", "port=30049"}, []string{"proto=tcp", "port=30049", "nfsvers=4.1"}, []string{"port=30049", "nfsvers=4.1"}, "4.1"},
		{"no version", []string{"nfsvers=4.2"}, []string{"hard"}, nil, "4.2"},
		{"none", []string{"nfsvers=4.2"}, []string{}, nil, "4.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Manifest{MountOptions: tt.noted}
			pv := &v1.PersistentVolume{}
			if pv.Spec.MountOptions = tt.options; tt.options == nil {
				pv.Spec.MountOptions = mountOptions(address, tt.noted)
			}
			changed := m.NoteMountOptions(pv)
			want := tt.want
			if want == nil {
				want = tt.noted
			}
			if changed != (tt.want != nil) || !slices.Equal(m.MountOptions, want) {
				t.Errorf("noted are %v, changed: %v, want %v", m.MountOptions, changed, want)
			}
			if m.NoteMountOptions(pv) {
				t.Errorf("noted again: %v", m.MountOptions)
			}
			data, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			v := volume.Volume{Name: "v", Path: "v", Manifest: data}
			if version := MountVersion(v); version != tt.version {
				t.Errorf("version %s, want %s", version, tt.version)
			}
			again, err := p.PersistentVolume(t.Context(), v)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := slices.Sorted(slices.Values(again.Spec.MountOptions)), slices.Sorted(slices.Values(tt.options)); tt.want != nil && !slices.Equal(got, want) {
				t.Errorf("written again it has %v, want %v", got, want)
			}
		})
	}
}
