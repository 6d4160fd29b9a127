// Package standalone runs the provisioner without a cluster: a folder of manifests
// replaces the API server.
//
// A Runner scans the folder: once a second while there is something to do, and otherwise when the
// kernel tells of a change (Runner.rest). For a PersistentVolumeClaim without a volume, it creates one with the
// same Provisioner that serves a cluster, and writes the PersistentVolume to
// provisioned/<name>.yaml. If a claim is removed from the folder, its volume is handled by the
// reclaim policy.
//
// A volume with data is never deleted by mistake: only if every file of the folder was understood,
// and the claim was gone for a while in which no file changed (reclaim.go). A claim that has a
// volume never gets another one: if that volume is missing, because the disk is another one or the
// record is damaged, the Runner reports it (known.go).
//
// Each file is read to its end, as YAML or as a stream of JSON objects (documents.go). What is not
// understood is an error that names the line (manifests.go, kinds.go), and what the API server would
// refuse is an error, too (validate.go). A claim without a class gets the one that Kubernetes would
// choose (class.go), and a claim that names its volume gets that one or none (volumename.go).
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// scanInterval is the time between two scans of the folder.
const scanInterval = time.Second

const (
	// restInterval is the time between two looks at the volumes while there is nothing to do, and the kernel would
	// tell of a change in the folder: what somebody does to volumes by command is seen that late.
	restInterval = time.Minute
	// settleTime is from a change until the scan, for a file that is still being written.
	settleTime = scanInterval / 2
	// unsureMax is how many scans wait for a file that changes all the time. Then it is read as it is.
	unsureMax = 10
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

	problems provisioner.Problems // by what they are about
	found    atomic.Pointer[[]doctor.Result]
	gone     map[claimKey]gone   // claims that are not in the folder any more
	served   map[claimKey]string // the PersistentVolume printed last
	// asked has the UIDs of claims that have no volume yet, so that a claim keeps its
	// UID, and its problem, from one attempt to the next.
	asked map[claimKey]types.UID
	// settle is how long a file must be unchanged until it is read; it may still be written.
	settle time.Duration
	stamps map[string]stamp // of the files, at the last scan
	unsure int              // how many scans in a row have found a file that may still be written
	// strange has the claims that had a volume at the start, until one of them is seen in
	// the folder; nil before the first scan.
	strange map[claimKey]bool
	// seen has the names of the PersistentVolumes that were in provisioned/, see checkUnknown.
	seen map[string]bool

	manifests parsed[[]manifest]
	pvFiles   parsed[*v1.PersistentVolume]
}

// Run serves the folder until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	if err := CheckFolder(r.Claims); err != nil {
		return err
	}
	r.removeHalfWritten()
	r.gone, r.served, r.asked = map[claimKey]gone{}, map[claimKey]string{}, map[claimKey]types.UID{}
	r.settle = settleTime
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

// CheckFolder refuses a folder of claims that is not there, which is mistyped, or not mounted.
func CheckFolder(claims string) error {
	info, err := os.Stat(claims)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the folder of claims, %s, does not exist: correct --claims, mount what holds the folder, or make it (mkdir %s)", claims, claims)
	case err != nil:
		return fmt.Errorf("the folder of claims: %w", err)
	case !info.IsDir():
		return fmt.Errorf("the folder of claims, %s, is not a folder: set --claims to the folder with the manifests", claims)
	}
	return nil
}

// restful reports whether the next scan will do nothing, as long as the folder and the volumes stay as
// they are: no claim waits for anything, and nothing is wrong.
func (r *Runner) restful() bool {
	return len(r.gone) == 0 && len(r.asked) == 0 && len(r.problems.Current()) == 0 && r.unsure == 0
}

// rest waits until ctx ends, the folder changes, or the volumes are others.
func (r *Runner) rest(ctx context.Context, change <-chan struct{}, volumes []volume.Volume) {
	for {
		if changed := pause(ctx, change, idle.UntilTick(time.Now(), restInterval)); changed {
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
	m, pvs, err := r.readFolder()
	if r.problem("folder "+r.Claims, err); err != nil {
		clear(r.gone) // a claim must be seen missing all the time
		r.find(nil)
		return
	}
	if !maps.Equal(m.stamps, r.stamps) { // whoever changes files may not be done
		r.waitAnew()
	}
	r.stamps = m.stamps
	for file, err := range m.broken {
		r.problem("file "+file, err)
	}
	for subject, err := range m.twice {
		r.problem(subject, err)
	}
	r.putAside(pvs)
	for name, err := range pvs.lost {
		r.problem("PersistentVolume "+name, fmt.Errorf("%w; remove %s if its volume is not needed any more; until then no claim gets a new volume, as this may be its volume", err, r.pvFile(name)))
	}
	volumes := r.volumes()
	if r.strange == nil {
		r.strange = map[claimKey]bool{}
		for key := range volumes {
			r.strange[key] = true
		}
	}
	r.checkDoubles(volumes)
	r.ensureAll(ctx, m, volumes, pvs)
	if len(m.unsettled) > 0 { // it is unknown which claims there are
		r.unsure++
		return
	}
	r.unsure = 0
	maps.DeleteFunc(r.asked, func(key claimKey, _ types.UID) bool { return m.claims[key] == nil })
	r.reclaimAll(ctx, m, volumes, pvs)
	r.solved(m, pvs)
	r.find(m)
}

// readFolder reads what the folder has: the manifests, and the PersistentVolumes that were written there.
func (r *Runner) readFolder() (m *manifests, pvs writtenPVs, err error) {
	settle := r.settle
	if r.unsure >= unsureMax {
		settle = 0
	}
	m, err = readManifests(r.Claims, &r.manifests, settle)
	if err == nil {
		err = r.makeWay()
	}
	if err == nil {
		pvs, err = r.readPVs()
	}
	return m, pvs, err
}

// ensureAll makes sure that each claim has its volume, or tells why it has none.
func (r *Runner) ensureAll(ctx context.Context, m *manifests, volumes map[claimKey]volume.Volume, pvs writtenPVs) {
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		err := r.ensure(ctx, m, key, volumes, pvs)
		if errors.Is(err, errNotOurs) {
			r.Log.Debug("standalone: claim passed over", "claim", key, "reason", err)
			err = nil
		}
		if err != nil && len(m.unsettled) > 0 {
			continue // what it lacks, such as its class, may be there soon
		}
		r.problem("claim "+string(key), err, "claim", key, "file", m.fileOf("claim "+string(key)))
	}
}

// ensure makes sure that a claim has its volume and its PersistentVolume.
func (r *Runner) ensure(ctx context.Context, m *manifests, key claimKey, volumes map[claimKey]volume.Volume, pvs writtenPVs) error {
	claim := m.claims[key]
	r.isBack(key)
	v, found := volumes[key]
	if !found { // it may have been adopted since
		v, found = r.volumes()[key]
	}
	if !found {
		var err error
		if v, found, err = r.giveBack(ctx, claim, pvs); err != nil {
			return err
		}
	}
	if !found {
		if err := r.checkUnknown(key, pvs); err != nil {
			return err
		}
		if claim.Spec.VolumeName != "" {
			var err error
			if v, err = r.take(ctx, m, claim, pvs); err != nil {
				return err
			}
			found = true
		}
	}
	var pv *v1.PersistentVolume
	var err error
	if found {
		delete(r.asked, key)
		pv, err = r.keep(ctx, m, claim, v, pvs)
	} else {
		pv, err = r.provision(ctx, m, key)
	}
	if err != nil || pv == nil {
		return err
	}
	// Without the claim's UID, which no cluster has: in a cluster, the volume then
	// waits for a claim of that name.
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
	}
	if err := r.writePV(pv); err != nil {
		return fmt.Errorf("write its PersistentVolume: %w", err)
	}
	r.served[key] = pv.Name
	r.print(claim, pv)
	return nil
}

// keep expands the volume that a claim has, and returns its PersistentVolume, or nil if that
// is there.
func (r *Runner) keep(ctx context.Context, m *manifests, claim *v1.PersistentVolumeClaim, v volume.Volume, pvs writtenPVs) (*v1.PersistentVolume, error) {
	named := claim.Spec.VolumeName
	if named != "" && named != v.Name {
		return nil, fmt.Errorf("its volumeName is %s, and it has the volume %s, which is served as before: set volumeName to %s, or remove it", named, v.Name, v.Name)
	}
	size, err := requested(claim)
	if err != nil {
		return nil, err
	}
	switch {
	case size < v.Size && named != "": // a cluster binds a larger volume, too
	case size != v.Size:
		if v, err = r.resize(ctx, m, v, claim, size); err != nil {
			return nil, err
		}
		return r.Provisioner.VolumeFor(ctx, claim, v)
	}
	key := keyOf(claim.Namespace, claim.Name)
	if pv := pvs.byName[v.Name]; r.served[key] == v.Name && pv != nil && claimOf(pv) == key { // else it is written again
		return nil, nil
	}
	return r.Provisioner.VolumeFor(ctx, claim, v)
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

// requested returns the size that a claim requests, in bytes.
func requested(claim *v1.PersistentVolumeClaim) (int64, error) {
	size, err := provisioner.Bytes(claim.Spec.Resources.Requests[v1.ResourceStorage])
	if err != nil {
		return 0, fmt.Errorf("resources.requests.storage: %w", err)
	}
	return size, nil
}

// resize expands a volume to its claim's request.
func (r *Runner) resize(ctx context.Context, m *manifests, v volume.Volume, claim *v1.PersistentVolumeClaim, size int64) (volume.Volume, error) {
	if size > v.Size {
		class, err := m.class(claim, r.Provisioner.Name)
		if err != nil {
			return v, fmt.Errorf("expand volume %s: %w", v.Name, err)
		}
		if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
			return v, fmt.Errorf("StorageClass %s does not allow expansion from %s to %s: set its allowVolumeExpansion to true",
				class.Name, volume.FormatSize(v.Size), claim.Spec.Resources.Requests.Storage())
		}
	}
	return r.Provisioner.Store.Resize(ctx, v.Name, size, 0)
}

// provision makes a new volume for a claim, as the library's controller does.
func (r *Runner) provision(ctx context.Context, m *manifests, key claimKey) (*v1.PersistentVolume, error) {
	claim := m.claims[key]
	if r.asked[key] == "" {
		r.asked[key] = r.newUID(claim)
	}
	claim.UID = r.asked[key]
	class, err := m.class(claim, r.Provisioner.Name)
	if err != nil {
		return nil, err
	}
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
	delete(r.asked, key)
	return pv, nil
}

// problem reports a problem once, and when it is solved. more is for the log.
func (r *Runner) problem(about string, err error, more ...any) {
	switch r.problems.Update(about, err) {
	case provisioner.ProblemUnchanged:
	case provisioner.ProblemSolved:
		r.Log.Info("standalone: "+about+": the problem is solved", more...)
	case provisioner.ProblemWaiting:
		r.Log.Info("standalone: "+about+" waits for its copy", append(more, "reason", err)...)
	case provisioner.ProblemNew:
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		r.Log.Error("standalone: "+about+" has a problem", append(more, "reason", reason)...)
	}
}

// solved reports which files are no longer broken, and forgets files, claims and
// volumes that are gone.
func (r *Runner) solved(m *manifests, pvs writtenPVs) {
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
		case "claim", "class":
			return m.claims[claimKey(name)] != nil || m.twice[about] != nil
		case "volume":
			return pvs.byName[name] != nil
		case "PersistentVolume":
			return pvs.lost[name] != nil
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
