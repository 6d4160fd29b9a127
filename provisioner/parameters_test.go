package provisioner

import (
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

func TestParseClass(t *testing.T) {
	prefixes := func(networks ...string) (all []netip.Prefix) {
		for _, n := range networks {
			all = append(all, netip.MustParsePrefix(n))
		}
		return all
	}
	for _, tt := range []struct {
		name       string
		parameters map[string]string
		field      []string // mountOptions of the class
		want       parameters
	}{
		{"nothing", nil, nil, parameters{}},
		{"a Ganesha class", map[string]string{"gid": "1001", "rootSquash": "true", "mountOptions": "hard, timeo=50"}, nil, parameters{
			gid: 1001, mode: 0o2771, options: volume.Options{RootSquash: true}, mountOptions: []string{"hard", "timeo=50"},
		}},
		{"Ganesha does not mind case", map[string]string{"GID": "None", "rootsquash": "False", "mountoptions": ""}, nil, parameters{}},
		{"the field goes before the parameter", map[string]string{"mountOptions": "soft"}, []string{"hard"}, parameters{mountOptions: []string{"hard"}}},
		{"options in one string", nil, []string{"vers=3,hard", "nolock"}, parameters{mountOptions: []string{"vers=3", "hard", "nolock"}, version: "3"}},
		{"version 4.1", nil, []string{"nfsvers=4.1", "hard"}, parameters{mountOptions: []string{"nfsvers=4.1", "hard"}, version: "4.1"}},
		{"the highest version 4", map[string]string{"mountOptions": "v4"}, nil, parameters{mountOptions: []string{"v4"}, version: "4"}},
		{"version 4.2", nil, []string{"vers=4.2,hard"}, parameters{mountOptions: []string{"vers=4.2", "hard"}, version: "4.2"}},
		{"a version said twice", nil, []string{"vers=4.1", "nfsvers=4.1"}, parameters{mountOptions: []string{"vers=4.1", "nfsvers=4.1"}, version: "4.1"}},
		{"owner", map[string]string{"uid": "1000", "gid": "4294967294", "mode": "0750"}, nil, parameters{uid: 1000, gid: 4294967294, mode: 0o750}},
		{"mode alone", map[string]string{"mode": "01777"}, nil, parameters{mode: 0o1777}},
		{"squash", map[string]string{"allSquash": "true", "anonUid": "99", "anonGid": "98"}, nil, parameters{
			options: volume.Options{AllSquash: true, AnonUID: 99, AnonGID: 98},
		}},
		{"clients", map[string]string{"allowedClients": "10.0.0.0/8, fd00::/8,192.0.2.7,::ffff:192.0.2.8, "}, nil, parameters{
			options: volume.Options{Clients: prefixes("10.0.0.0/8", "fd00::/8", "192.0.2.7/32", "192.0.2.8/32")},
		}},
		{"what clients may do", map[string]string{"readOnly": "true", "sync": "false"}, nil, parameters{
			options: volume.Options{ReadOnly: true, Async: true},
		}},
		{"ports", map[string]string{"privilegedPorts": "true"}, nil, parameters{options: volume.Options{PrivilegedPorts: true}, saysPorts: true}},
		{"any ports", map[string]string{"privilegedPorts": "false"}, []string{"noresvport"}, parameters{mountOptions: []string{"noresvport"}, saysPorts: true}},
		{"the defaults, said", map[string]string{"readOnly": "false", "sync": "true", "onDelete": "delete"}, nil, parameters{onDelete: volume.DeleteFiles}},
		{"archive", map[string]string{"onDelete": "archive", "overcommit": " 1.5 "}, nil, parameters{onDelete: volume.ArchiveFiles, overcommit: 1.5}},
		{"inodes", map[string]string{"bytesPerInode": "16Ki"}, nil, parameters{bytesPerInode: 16384}},
		{"inodes, the most", map[string]string{"bytesPerInode": "256"}, nil, parameters{bytesPerInode: 256}},
		{"retain", map[string]string{"onDelete": "retain"}, nil, parameters{onDelete: volume.RetainFiles}},
		{"snapshots", map[string]string{"snapshots": "hourly=24, daily=7"}, nil, parameters{schedule: volume.Schedule{Hourly: 24, Daily: 7}}},
		{"a promise for snapshots", map[string]string{"snapshotReserve": "20%"}, nil, parameters{reserve: ptr(20)}},
		{"none for snapshots", map[string]string{"snapshotReserve": "0"}, nil, parameters{reserve: ptr(0)}},
		{"no snapshots", map[string]string{"snapshots": "none"}, nil, parameters{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := class()
			c.Parameters, c.MountOptions = tt.parameters, tt.field
			got, err := parseClass(c)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("\n got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseClassRefused(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        []string // in the error
	}{
		{"gid", "staff", []string{"gid", `"staff"`, `"none"`, "4294967294"}},
		{"gid", "0", []string{"gid", "from 1"}},
		{"gid", "-1", []string{"gid"}},
		{"gid", "4294967295", []string{"gid"}},
		{"uid", "root", []string{"uid", "number"}},
		{"uid", "", []string{"uid"}},
		{"mode", "rwxrwx---", []string{"mode", "octal"}},
		{"mode", "0789", []string{"mode", "octal"}},
		{"mode", "010000", []string{"mode"}},
		{"mode", "0", []string{"mode"}},
		{"snapshots", "hourly", []string{"snapshots", "how many to keep"}},
		{"snapshots", "", []string{"snapshots", "hourly=24"}},
		{"snapshotReserve", "20", []string{"snapshotReserve", "100%"}},
		{"snapshotReserve", "101%", []string{"snapshotReserve"}},
		{"snapshotReserve", "-1%", []string{"snapshotReserve"}},
		{"snapshotReserve", "10Gi", []string{"snapshotReserve"}},
		{"rootSquash", "yes", []string{"rootSquash", `"true"`, `"false"`}},
		{"allSquash", "", []string{"allSquash"}},
		{"anonUid", "0", []string{"anonUid", "from 1"}},
		{"anonGid", "nobody", []string{"anonGid"}},
		{"allowedClients", "10.0.0.0/33, fd00::/8, nas.example.com", []string{`"10.0.0.0/33"`, `"nas.example.com"`}},
		{"allowedClients", "10.1.2.3/8", []string{"10.1.2.3/8", "use 10.0.0.0/8"}},
		{"allowedClients", "fe80::1%eth0", []string{"fe80::1%eth0"}},
		{"allowedClients", " , ", []string{"it is empty"}},
		{"readOnly", "2", []string{"readOnly"}},
		{"sync", "always", []string{"sync"}},
		{"onDelete", "Delete", []string{"onDelete", `"archive"`}},
		{"bytesPerInode", "255", []string{`parameter bytesPerInode: "255" is not a size, or too small`, "256 or more", "16Ki"}},
		{"bytesPerInode", "16", []string{"bytesPerInode", "256 or more"}},
		{"bytesPerInode", "-4Ki", []string{"bytesPerInode"}},
		{"bytesPerInode", "none", []string{"bytesPerInode"}},
		{"overcommit", "0", []string{"overcommit", "above 0"}},
		{"overcommit", "NaN", []string{"overcommit"}},
		{"overcommit", "+Inf", []string{"overcommit"}},
		{"overcommit", "two", []string{"overcommit"}},
		{"pathPattern", "/volumes/${pvc.name}", []string{"pathPattern", "relative"}},
		{"mountOptions", "vers=4.3,hard", []string{"mount option vers=4.3", "use nfsvers=3, nfsvers=4.1 or nfsvers=4.2"}},
		{"mountOptions", "nfsvers=4.0", []string{"mount option nfsvers=4.0", "use nfsvers=3, nfsvers=4.1 or nfsvers=4.2"}},
		{"mountOptions", "v4.0", []string{"mount option v4.0"}},
		{"mountOptions", "v2", []string{"mount option v2"}},
		{"mountOptions", "nfsvers=", []string{"mount option nfsvers="}},
		{"mountOptions", "vers=4,minorversion=1", []string{"mount option minorversion=1", "nfsvers=4.1"}},
		{"mountOptions", "nfsvers=3,vers=4.1", []string{"nfsvers=3 and vers=4.1 contradict each other"}},
		{"mountOptions", "nolock,nfsvers=4.1,mountport=1", []string{"mount option nolock is for NFS version 3, and nfsvers=4.1 asks for another", "mountport=1"}},
		{"mountOptions", "v4,local_lock=all", []string{"mount option local_lock=all is for NFS version 3"}},
		{"mountOptions", "hard,udp", []string{"udp", "TCP"}},
		// Names.
		{"rootSqash", "true", []string{"rootSqash", "did you mean rootSquash?"}},
		{"onDelte", "retain", []string{"did you mean onDelete?"}},
		{"readonly", "true", []string{"did you mean readOnly?"}},
		{"ANONUID", "1", []string{"did you mean anonUid?"}},
		{"path_pattern", "x", []string{"did you mean pathPattern?"}},
		{"allowedClient", "10.0.0.1", []string{"did you mean allowedClients?"}},
		{"replicas", "3", []string{"unknown parameter replicas", "the parameters are allSquash, allowedClients"}},
		{"csi.storage.k8s.io/fstype", "xfs", []string{"csi.storage.k8s.io/fstype", "CSI"}},
		{"archiveOnDelete", "true", []string{"use onDelete"}},
		{"subDir", "x", []string{"use pathPattern"}},
		{"privilegedPorts", "secure", []string{"privilegedPorts", `"true"`}},
		{"secure", "true", []string{"use privilegedPorts"}},
		{"server", "nas", []string{"remove it"}},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			c := class()
			c.MountOptions = nil
			c.Parameters = map[string]string{tt.name: tt.value}
			_, err := parseClass(c)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

// Kubelet mounts from privileged ports, so in a cluster no other is taken, unless the
// class has it mount otherwise, or says it.
func TestDefaultPorts(t *testing.T) {
	for _, tt := range []struct {
		name       string
		inCluster  bool
		parameters map[string]string
		options    []string
		want       bool
	}{
		{"in a cluster", true, nil, nil, true},
		{"without", false, nil, nil, false},
		{"said", true, map[string]string{"privilegedPorts": "false"}, nil, false},
		{"said without a cluster", false, map[string]string{"privilegedPorts": "true"}, nil, true},
		{"mounts from any port", true, nil, []string{"hard,noresvport"}, false},
		{"the parameter has the mount options", true, map[string]string{"mountOptions": "noresvport"}, nil, false},
	} {
		c := class()
		c.Parameters, c.MountOptions = tt.parameters, tt.options
		p, _ := newProvisioner(t)
		p.InCluster = tt.inCluster
		_, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: c, PVName: "pvc-1", PVC: fixture.Claim("1Mi")})
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Store.Get("pvc-1")
		if err != nil || v.Options.PrivilegedPorts != tt.want {
			t.Errorf("%s: %v, %v", tt.name, v.Options.PrivilegedPorts, err)
		}
	}
	c := class()
	c.Parameters, c.MountOptions = map[string]string{"privilegedPorts": "true"}, []string{"noresvport"}
	if _, err := parseClass(c); err == nil || !strings.Contains(err.Error(), "remove one of them") {
		t.Errorf("what contradicts itself: %v", err)
	}
}

// Everything that is wrong is told at once, and what a class gives twice too.
func TestParseClassTellsAll(t *testing.T) {
	c := class()
	c.MountOptions = []string{"vers=4.0"}
	c.Parameters = map[string]string{"gid": "x", "GID": "7", "sync": "x", "sizes": "x"}
	_, err := parseClass(c)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"parameter gid is set twice", "parameter sync", "unknown parameter sizes", "vers=4.0"} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%q has %q %d times, want it once", err, want, strings.Count(err.Error(), want))
		}
	}
}

func TestPathPattern(t *testing.T) {
	c := fixture.Claim("1Mi")
	c.Labels = map[string]string{"app.kubernetes.io/name": "shop", "empty": ""}
	c.Annotations = map[string]string{"podnas.io/path": "team/data", "up": "../other", "root": "/etc", "ctl": "."}
	for _, tt := range []struct{ pattern, want, wrong string }{
		{"${pvc.namespace}/${pvc.name}", "ns/data", ""},
		{"volumes/${pv.name}", "volumes/pvc-1", ""},
		{"${pvc.labels.app.kubernetes.io/name}-${pvc.name}", "shop-data", ""},
		{"${pvc.labels['app.kubernetes.io/name']}", "shop", ""},
		{"${pvc.annotations['podnas.io/path']}/${pvc.name}", "team/data/data", ""},
		{"$x ${pvc.name}", "$x data", ""},
		// As nfs-subdir-external-provisioner and csi-driver-nfs write them.
		{"${.PVC.namespace}/${.PVC.annotations.podnas.io/path}", "ns/team/data", ""},
		{"${pvc.metadata.namespace}/${pvc.metadata.name}/${pv.metadata.name}", "ns/data/pvc-1", ""},

		{"${pvc.labels.team}", "", "the claim has no label team"},
		{"${pvc.labels.empty}/x", "", "the claim has no label empty"},
		{"a/${pvc.annotations.up}", "", `"a/../other"`},
		{"${pvc.annotations.root}/x", "", "relative"},
		{"${pvc.annotations.ctl}", "", "plain names"},
		{"", "", "empty"},
		{"${pvc.uid}", "", "unknown ${pvc.uid}"},
		{"${pv.namespace}", "", "unknown ${pv.namespace}"},
		{"${namespace}", "", "${pvc.namespace}"},
		{"a/${pvc.name", "", "no closing }"},
		{"a//${pvc.name}", "", "plain names"},
		{"../${pvc.name}", "", "plain names"},
		{"${pvc.name}/", "", "plain names"},
	} {
		got := ""
		p, err := parsePathPattern(tt.pattern)
		if err == nil {
			got, err = p.expand(c, "pvc-1")
		}
		switch {
		case tt.wrong == "" && (err != nil || got != tt.want):
			t.Errorf("%s: %q, %v, want %q", tt.pattern, got, err, tt.want)
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%s: %q, %v, want an error with %q", tt.pattern, got, err, tt.wrong)
		}
	}
}

func TestSourceClaim(t *testing.T) {
	group, other, same := "snapshot.storage.k8s.io", "elsewhere", "ns"
	type local = v1.TypedLocalObjectReference
	type ref = v1.TypedObjectReference
	for _, tt := range []struct {
		name        string
		local       *local
		ref         *ref
		want, wrong string
	}{
		{"none", nil, nil, "", ""},
		{"dataSource", &local{Kind: "PersistentVolumeClaim", Name: "a"}, nil, "a", ""},
		{"both, as the API server has it", &local{Kind: "PersistentVolumeClaim", Name: "a"}, &ref{Kind: "PersistentVolumeClaim", Name: "a"}, "a", ""},
		{"dataSourceRef", nil, &ref{Kind: "PersistentVolumeClaim", Name: "b", Namespace: &same}, "b", ""},
		{"another namespace", nil, &ref{Kind: "PersistentVolumeClaim", Name: "b", Namespace: &other}, "", "only be copied within its namespace"},
		{"snapshot", &local{APIGroup: &group, Kind: "VolumeSnapshot", Name: "s"}, nil, "snapshot s", ""},
		{"snapshot of another group", &local{APIGroup: &other, Kind: "VolumeSnapshot", Name: "s"}, nil, "", "dataSource VolumeSnapshot s"},
		{"snapshot of no group", &local{Kind: "VolumeSnapshot", Name: "s"}, nil, "", "dataSource VolumeSnapshot s"},
		{"claim of a group", &local{APIGroup: &group, Kind: "PersistentVolumeClaim", Name: "s"}, nil, "", "dataSource PersistentVolumeClaim s"},
		{"snapshot in another namespace", nil, &ref{APIGroup: &group, Kind: "VolumeSnapshot", Name: "s", Namespace: &other}, "", "only be copied within its namespace"},
		{"populator", nil, &ref{APIGroup: &group, Kind: "Populator", Name: "p"}, "", "dataSourceRef Populator p"},
	} {
		c := fixture.Claim("1Mi")
		c.Spec.DataSource, c.Spec.DataSourceRef = tt.local, tt.ref
		got, err := sourceOf(c)
		if name := got.name; got.isSnapshot != strings.HasPrefix(tt.want, "snapshot ") || name != strings.TrimPrefix(tt.want, "snapshot ") || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v, %v, want %q or an error with %q", tt.name, got, err, tt.want, tt.wrong)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"gid", "uid", 1}, {"abc", "abc", 0}, {"ab", "ba", 2}} {
		if got, back := distance(tt.a, tt.b), distance(tt.b, tt.a); got != tt.want || back != tt.want {
			t.Errorf("%q and %q: %d and %d, want %d", tt.a, tt.b, got, back, tt.want)
		}
	}
}

// Whatever a class and a claim say, a path stays below the root of the disk.
func FuzzPathPattern(f *testing.F) {
	f.Add("${pvc.namespace}/${pvc.name}", "a", "b")
	f.Add("${pvc.labels['x']}/${pvc.annotations.x}", "..", "/")
	f.Add("${.PVC.metadata.name}${", "", "}")
	f.Fuzz(func(t *testing.T, pattern, label, annotation string) {
		p, err := parsePathPattern(pattern)
		if err != nil {
			return
		}
		c := fixture.Claim("1Mi")
		c.Labels, c.Annotations = map[string]string{"x": label}, map[string]string{"x": annotation}
		made, err := p.expand(c, "pvc-1")
		if err == nil && !filepath.IsLocal(made) {
			t.Errorf("%q with %q and %q makes %q", pattern, label, annotation, made)
		}
	})
}
