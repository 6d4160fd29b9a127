// Package standalone runs the provisioner without a cluster: a folder of
// manifests takes the place of the API server.
//
// A Runner looks at the folder once a second. A PersistentVolumeClaim in it
// that has no volume gets one, through the same Provisioner that serves a
// cluster, and the PersistentVolume is written to provisioned/<name>.yaml. A
// claim that is taken out of the folder ends its volume by the reclaim policy.
//
// A volume with data must never go by mistake. So nothing is deleted while any
// file can't be read, a claim must be missing twice in a row (editors replace
// files), and only a volume whose PersistentVolume stands in this folder's
// provisioned/ is touched: another folder, or an empty one mounted in its place,
// deletes nothing.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/volume"
)

// scanInterval is how soon a change in the folder is seen.
const scanInterval = time.Second

// Runner serves the claims of a folder. All fields are needed.
type Runner struct {
	Claims      string // the folder
	Root        string // of the disk, to tell people where a volume is
	Name        string // of the provisioner, as StorageClasses say it
	Limits      string // how limits are enforced, for people
	Provisioner *provisioner.Provisioner
	Out         io.Writer // what was done, for people
	Log         *slog.Logger

	said    map[string]string   // the last problem said, by what it is about
	missing map[claimKey]int    // how many scans in a row a claim was not seen
	served  map[claimKey]string // the PersistentVolume that was printed

	manifests parsed[[]any]
	pvFiles   parsed[*v1.PersistentVolume]
}

// Run looks after the folder until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	if err := os.MkdirAll(r.Claims, 0o755); err != nil {
		return fmt.Errorf("make the folder of claims: %w", err)
	}
	r.said, r.missing, r.served = map[string]string{}, map[claimKey]int{}, map[claimKey]string{}
	r.printf("podnas: claims in %s get volumes in %s\npodnas: %s\n", r.Claims, r.Root, r.Limits)
	for {
		r.scan(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(scanInterval):
		}
	}
}

// scan brings the volumes into line with the folder once.
func (r *Runner) scan(ctx context.Context) {
	m, err := readManifests(r.Claims, &r.manifests)
	if err != nil {
		r.problem("folder", err)
		return
	}
	pvs, err := r.readPVs()
	if err != nil {
		r.problem("folder", err)
		return
	}
	r.problem("folder", errors.Join(m.broken...))

	volumes := r.volumes()
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		err := r.ensure(ctx, m, key, volumes, pvs)
		if errors.Is(err, errNotOurs) {
			r.Log.Debug("standalone: claim passed over", "claim", key, "reason", err)
			err = nil
		}
		r.problem("claim "+string(key), err)
	}
	if len(m.broken) == 0 {
		for _, name := range slices.Sorted(maps.Keys(pvs)) {
			r.problem("volume "+name, r.reclaim(ctx, m, pvs[name]))
		}
	}
}

// ensure makes sure that a claim has its volume and its PersistentVolume.
func (r *Runner) ensure(ctx context.Context, m *manifests, key claimKey, volumes map[claimKey]volume.Volume, pvs map[string]*v1.PersistentVolume) error {
	claim := m.claims[key]
	delete(r.missing, key)
	v, found := volumes[key]
	if !found { // it may have been adopted since
		v, found = r.volumes()[key]
	}
	if found {
		claim.UID = types.UID(v.Claim.UID)
		if request := claim.Spec.Resources.Requests.Storage(); r.served[key] == v.Name && pvs[v.Name] != nil && request.Value() == v.Size {
			return nil
		}
	} else {
		claim.UID = r.newUID(claim)
	}
	class, err := m.class(claim, r.Name)
	if err != nil {
		return err
	}
	if found {
		if err := r.resize(ctx, v, claim, class); err != nil {
			return err
		}
	}
	pv, err := r.provision(ctx, claim, class)
	if err != nil {
		return err
	}
	if err := r.writePV(pv); err != nil {
		return fmt.Errorf("write its PersistentVolume: %w", err)
	}
	r.served[key] = pv.Name
	r.print(claim, pv)
	return nil
}

// volumes are those that earlier scans, or earlier runs, made for claims. The records
// of the disk tell it, not the files in provisioned/: those may be removed by hand
// without harm.
func (r *Runner) volumes() map[claimKey]volume.Volume {
	volumes := map[claimKey]volume.Volume{}
	for _, v := range r.Provisioner.Store.List() {
		if c := v.Claim; c != nil {
			key := keyOf(c.Namespace, c.Name)
			if _, found := volumes[key]; !found { // of two, the first
				volumes[key] = v
			}
		}
	}
	return volumes
}

// VolumeOf implements provisioner.Claims.
func (r *Runner) VolumeOf(namespace, name string) (string, error) {
	v, found := r.volumes()[keyOf(namespace, name)]
	if !found {
		return "", fmt.Errorf("claim %s can't be copied: it has no volume in namespace %s", name, namespace)
	}
	return v.Name, nil
}

// newUID is for a claim that has no volume. That of a copy is always the same:
// while it is copied no record that can be seen tells of it, and a second scan,
// or a second run, must find it again by its name.
func (r *Runner) newUID(claim *v1.PersistentVolumeClaim) types.UID {
	if claim.Spec.DataSource == nil && claim.Spec.DataSourceRef == nil {
		return types.UID(uuid.NewString())
	}
	for n := 0; ; n++ {
		id := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%s/%s/%d", r.Provisioner.Store.Identity(), claim.Namespace, claim.Name, n)).String()
		// An older copy of that name may have been released and kept.
		if _, err := r.Provisioner.Store.Get(volumeName(types.UID(id))); err != nil {
			return types.UID(id)
		}
	}
}

// volumeName is what the library's controller would call the volume.
func volumeName(uid types.UID) string { return "pvc-" + string(uid) }

// resize raises a volume to what its claim has come to ask for.
func (r *Runner) resize(ctx context.Context, v volume.Volume, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	request := claim.Spec.Resources.Requests.Storage()
	if request.Value() > v.Size && (class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion) {
		return fmt.Errorf("StorageClass %s does not allow to raise it from %s to %s: set its allowVolumeExpansion to true",
			class.Name, volume.FormatSize(v.Size), request)
	}
	_, err := r.Provisioner.Store.Resize(ctx, v.Name, request.Value())
	return err
}

// provision does for a claim what the library's controller does.
func (r *Runner) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) (*v1.PersistentVolume, error) {
	p := *r.Provisioner
	p.Claims = r
	pv, _, err := p.Provision(ctx, controller.ProvisionOptions{
		StorageClass: class,
		PVName:       volumeName(claim.UID),
		PVC:          claim,
	})
	if err != nil {
		return nil, fmt.Errorf("provision a volume with StorageClass %s: %w", class.Name, err)
	}
	// Without the claim's UID, which no cluster knows: applied to one, the
	// volume waits for a claim of that name.
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
	}
	return pv, nil
}

// reclaim ends a volume whose claim has left the folder.
func (r *Runner) reclaim(ctx context.Context, m *manifests, pv *v1.PersistentVolume) error {
	key := keyOf(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	if _, there := m.claims[key]; there || pv.Status.Phase == v1.VolumeReleased {
		return nil
	}
	if r.missing[key]++; r.missing[key] < 2 {
		return nil
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		if err := r.Provisioner.Store.Release(ctx, pv.Name); err != nil && !errors.Is(err, volume.ErrNotFound) {
			return err
		}
		pv.Status.Phase = v1.VolumeReleased
		if err := r.writePV(pv); err != nil {
			return err
		}
		r.printf("\nvolume %s is released: claim %s is gone, its reclaim policy keeps the data\n", pv.Name, key)
	} else {
		if err := r.Provisioner.Delete(ctx, pv); err != nil {
			return err
		}
		if err := os.Remove(r.pvFile(pv.Name)); err != nil {
			return err
		}
		r.printf("\nvolume %s is deleted: claim %s is gone\n", pv.Name, key)
	}
	delete(r.served, key)
	delete(r.missing, key)
	return nil
}

// problem says what is wrong once, and when it is over.
func (r *Runner) problem(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	// The amount of free space changes all the time, and so does what is copied;
	// that is no news.
	var noSpace *volume.NoSpaceError
	var copying *volume.CopyingError
	if before := r.said[about]; before == text || before != "" && (errors.As(err, &noSpace) || errors.As(err, &copying)) {
		return
	}
	if errors.As(err, &copying) {
		r.said[about] = text
		r.Log.Info("standalone: "+about, "waits", err)
		return
	}
	if r.said[about] = text; text == "" {
		delete(r.said, about)
		return
	}
	r.Log.Error("standalone: "+about, "err", err)
}

// print tells people about a volume.
func (r *Runner) print(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
	server := pv.Spec.NFS.Server
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	r.printf(`
volume %s
  claim  %s/%s
  size   %s
  path   %s
  mount  sudo mount -t nfs -o %s %s:%s /mnt
  apply  kubectl apply -f %s
`, pv.Name, claim.Namespace, claim.Name,
		claim.Spec.Resources.Requests.Storage(),
		filepath.Join(r.Root, strings.TrimPrefix(pv.Spec.NFS.Path, "/")),
		strings.Join(pv.Spec.MountOptions, ","), server, pv.Spec.NFS.Path,
		r.pvFile(pv.Name))
}

func (r *Runner) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(r.Out, format, args...); err != nil {
		r.Log.Debug("standalone: write to standard output", "err", err)
	}
}
