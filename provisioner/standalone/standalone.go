// Package standalone runs the provisioner without a cluster: a folder of manifests
// replaces the API server.
//
// A Runner scans the folder once a second. For a PersistentVolumeClaim without a
// volume, it creates one with the same Provisioner that serves a cluster, and
// writes the PersistentVolume to provisioned/<name>.yaml. If a claim is removed
// from the folder, its volume is handled by the reclaim policy.
//
// A volume with data is never deleted by mistake (reclaim.go), and a claim that
// has a volume never gets another one (known.go).
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
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/aligned"
	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/problem"
	"github.com/podnas/podnas/tree"
	"github.com/podnas/podnas/volume"
)

// scanInterval is the time between two scans of the folder.
const scanInterval = time.Second

const (
	// restInterval is the time between two looks at the volumes while there is nothing to do, and the kernel would
	// tell of a change in the folder: what somebody does to volumes by command is seen that late.
	restInterval = time.Minute
	// settleTime is from a change until the scan, for a file that is still being written.
	settleTime = scanInterval / 2
)

// Runner serves the claims of a folder. All fields but NewDisk are needed.
type Runner struct {
	Claims string // the folder
	Root   string // of the disk, for messages that say where a volume is
	Limits string // how limits are enforced, as text
	// Grace is how long a claim must be missing in the folder before its volume is
	// deleted.
	Grace       time.Duration
	NewDisk     bool // create new volumes for claims whose volumes are on another disk
	Provisioner *provisioner.Provisioner
	Out         io.Writer // gets messages about what was done
	Log         *slog.Logger

	problems problem.Set // by what they are about
	found    atomic.Pointer[[]doctor.Result]
	gone     map[claimKey]gone   // claims that are not in the folder any more
	served   map[claimKey]string // the PersistentVolume printed last
	// asked has the UIDs of claims that have no volume yet, so that a claim keeps its
	// UID, and its problem, from one attempt to the next.
	asked map[claimKey]types.UID

	damaged   int // files that a Runner that only looks has found
	manifests parsed[[]any]
	pvFiles   parsed[*v1.PersistentVolume]
}

// Run serves the folder until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	if err := os.MkdirAll(r.Claims, 0o755); err != nil {
		return fmt.Errorf("make the folder of claims: %w", err)
	}
	r.removeHalfWritten()
	r.gone, r.served, r.asked = map[claimKey]gone{}, map[claimKey]string{}, map[claimKey]types.UID{}
	r.printf("podnas: serving claims of %s from volumes in %s\npodnas: %s\n", r.Claims, r.Root, r.Limits)
	for {
		// Before the scan, so that no change falls between the two.
		volumes := r.Provisioner.Store.List()
		changes, err := tree.NewWatch(r.Claims, filepath.Join(r.Claims, provisionedDir))
		r.scan(ctx)
		if err == nil && r.restful() {
			r.rest(ctx, changes.Changed(), volumes)
		} else {
			pause(ctx, nil, scanInterval)
		}
		changes.Close()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// restful reports whether the next scan will do nothing, as long as the folder and the volumes stay as
// they are: no claim waits for anything, and nothing is wrong.
func (r *Runner) restful() bool {
	return len(r.gone) == 0 && len(r.asked) == 0 && len(r.problems.Current()) == 0
}

// rest waits until ctx ends, the folder changes, or the volumes are others.
func (r *Runner) rest(ctx context.Context, change <-chan struct{}, volumes []volume.Volume) {
	for {
		if changed := pause(ctx, change, aligned.Until(time.Now(), restInterval)); changed {
			pause(ctx, nil, settleTime)
			return
		}
		if ctx.Err() != nil || !reflect.DeepEqual(r.Provisioner.Store.List(), volumes) {
			return
		}
	}
}

// pause waits for so long, or until ctx ends or something changes.
func pause(ctx context.Context, change <-chan struct{}, d time.Duration) (changed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-change:
		return true
	case <-timer.C:
	}
	return false
}

// scan reads the folder once, and creates, expands and deletes volumes
// accordingly.
func (r *Runner) scan(ctx context.Context) {
	m, err := readManifests(r.Claims, &r.manifests)
	var pvs map[string]*v1.PersistentVolume
	if err == nil {
		pvs, err = r.readPVs()
	}
	if r.problem("folder "+r.Claims, err); err != nil {
		r.find(nil)
		return
	}
	for file, err := range m.broken {
		r.problem("file "+file, err)
	}
	volumes := r.volumes()
	r.checkDoubles(volumes)
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		err := r.ensure(ctx, m, key, volumes, pvs)
		if errors.Is(err, errNotOurs) {
			r.Log.Debug("standalone: claim passed over", "claim", key, "reason", err)
			err = nil
		}
		r.problem("claim "+string(key), err, "claim", key, "file", m.sources[key])
	}
	maps.DeleteFunc(r.asked, func(key claimKey, _ types.UID) bool { return m.claims[key] == nil })
	r.reclaimAll(ctx, m, pvs)
	r.solved(m, pvs)
	r.find(m)
}

// ensure makes sure that a claim has its volume and its PersistentVolume.
func (r *Runner) ensure(ctx context.Context, m *manifests, key claimKey, volumes map[claimKey]volume.Volume, pvs map[string]*v1.PersistentVolume) error {
	claim := m.claims[key]
	r.isBack(key)
	v, found := volumes[key]
	if !found { // it may have been adopted since
		v, found = r.volumes()[key]
	}
	if found {
		claim.UID = types.UID(v.Claim.UID)
		delete(r.asked, key)
		if request := claim.Spec.Resources.Requests.Storage(); r.served[key] == v.Name && pvs[v.Name] != nil && request.Value() == v.Size {
			return nil
		}
	} else {
		if err := r.checkUnknown(key, pvs); err != nil {
			return err
		}
		if r.asked[key] == "" {
			r.asked[key] = r.newUID(claim)
		}
		claim.UID = r.asked[key]
	}
	class, err := m.class(claim, r.Provisioner.Name)
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

// VolumeOf implements provisioner.Claims.
func (r *Runner) VolumeOf(namespace, name string) (string, error) {
	v, found := r.volumes()[keyOf(namespace, name)]
	if !found {
		return "", fmt.Errorf("claim %s can't be copied: it has no volume in namespace %s", name, namespace)
	}
	return v.Name, nil
}

// newUID returns the UID for a claim without a volume. For a clone it is derived
// from the claim: while the copy runs it has no visible record, and a second scan,
// or a second run, must find it again by its name.
func (r *Runner) newUID(claim *v1.PersistentVolumeClaim) types.UID {
	if claim.Spec.DataSource == nil && claim.Spec.DataSourceRef == nil {
		return types.UID(uuid.NewString())
	}
	for n := 0; ; n++ {
		id := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%s/%s/%d", r.Provisioner.Store.Identity(), claim.Namespace, claim.Name, n)).String()
		// An older clone of that name may have been released and kept.
		if _, err := r.Provisioner.Store.Get(volumeName(types.UID(id))); err != nil {
			return types.UID(id)
		}
	}
}

// volumeName is the volume's name, like that of the library's controller.
func volumeName(uid types.UID) string { return "pvc-" + string(uid) }

// resize expands a volume to its claim's request.
func (r *Runner) resize(ctx context.Context, v volume.Volume, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	request := claim.Spec.Resources.Requests.Storage()
	if request.Value() > v.Size && (class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion) {
		return fmt.Errorf("StorageClass %s does not allow expansion from %s to %s: set its allowVolumeExpansion to true",
			class.Name, volume.FormatSize(v.Size), request)
	}
	_, err := r.Provisioner.Store.Resize(ctx, v.Name, request.Value(), 0)
	return err
}

// provision does for a claim what the library's controller does.
func (r *Runner) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) (*v1.PersistentVolume, error) {
	p := *r.Provisioner
	p.Claims = r
	class = keepByDefault(class)
	pv, _, err := p.Provision(ctx, controller.ProvisionOptions{
		StorageClass: class,
		PVName:       volumeName(claim.UID),
		PVC:          claim,
	})
	if err != nil {
		return nil, fmt.Errorf("provision a volume with StorageClass %s: %w", class.Name, err)
	}
	// Without the claim's UID, which no cluster has: in a cluster, the volume then
	// waits for a claim of that name.
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
	}
	return pv, nil
}

// problem reports a problem once, and when it is solved. more is for the log.
func (r *Runner) problem(about string, err error, more ...any) {
	switch r.problems.Update(about, err) {
	case problem.Unchanged:
	case problem.Solved:
		r.Log.Info("standalone: "+about+": the problem is solved", more...)
	case problem.Waiting:
		r.Log.Info("standalone: "+about+" waits for its copy", append(more, "reason", err)...)
	case problem.New:
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		r.Log.Error("standalone: "+about+" has a problem", append(more, "reason", reason)...)
	}
}

// solved reports which files are no longer broken, and forgets files, claims and
// volumes that are gone.
func (r *Runner) solved(m *manifests, pvs map[string]*v1.PersistentVolume) {
	for _, file := range m.names {
		if m.broken[file] == nil {
			r.problem("file "+file, nil)
		}
	}
	r.problems.Keep(func(about string) bool {
		kind, name, _ := strings.Cut(about, " ")
		switch kind {
		case "file":
			return slices.Contains(m.names, name)
		case "claim":
			return m.claims[claimKey(name)] != nil
		case "volume":
			return pvs[name] != nil
		}
		return true
	})
}

// print prints a volume.
func (r *Runner) print(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
	r.printf(`
volume %s
  claim  %s/%s
  size   %s
  path   %s
  mount  %s
  PV     %s
`, pv.Name, claim.Namespace, claim.Name,
		claim.Spec.Resources.Requests.Storage(),
		filepath.Join(r.Root, strings.TrimPrefix(pv.Spec.NFS.Path, "/")),
		provisioner.MountCommand(pv),
		r.pvFile(pv.Name))
}

func (r *Runner) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(r.Out, format, args...); err != nil {
		r.Log.Debug("standalone: write to standard output", "err", err)
	}
}
