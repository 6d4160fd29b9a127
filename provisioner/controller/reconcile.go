package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/snapshots"
)

const (
	reconcilePeriod = 10 * time.Minute
	// findingsPeriod is how often the comparison runs while it has findings, to see that
	// they are solved.
	findingsPeriod = time.Minute
	// youngVolume is how long the volume of a claim may lack a PersistentVolume: it may
	// still be in progress.
	youngVolume = 5 * time.Minute
	// changePause combines changes that come together.
	changePause = time.Second
)

// Report is the result of a comparison of the disk with the cluster.
type Report struct {
	Time time.Time // zero: not compared yet
	// StandsAside says why this podnas provisions no claims; empty if it does.
	StandsAside string
	// Findings are the findings that need the cluster; volume.Store.Check returns the
	// others.
	Findings []volume.Finding
}

// Reconciler holds the latest Report and the waiting claims. The zero Reconciler is ready
// for use.
type Reconciler struct {
	mu sync.Mutex
	// +checklocks:mu
	latest Report
	// +checklocks:mu
	unfulfilled *unfulfilled // nil: claims are not processed yet
	// +checklocks:mu
	snapshots *snapshots.Controller // nil: VolumeSnapshots are not served
}

// Report returns the latest Report.
func (r *Reconciler) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// Claims returns findings for unfulfilled claims, for volumes that can't be deleted, and for VolumeSnapshots.
func (r *Reconciler) Claims() []doctor.Result {
	r.mu.Lock()
	u, s := r.unfulfilled, r.snapshots
	r.mu.Unlock()
	if u == nil {
		return []doctor.Result{doctor.Good("podnas does not work on claims yet")}
	}
	results := u.look()
	if s != nil {
		results = append(results, s.Findings()...)
	}
	return results
}

func (r *Reconciler) lookAt(u *unfulfilled, s *snapshots.Controller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unfulfilled, r.snapshots = u, s
}

func (r *Reconciler) standAside(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest.StandsAside = why
}

// run compares until ctx ends.
func (r *Reconciler) run(ctx context.Context, c *comparison) {
	var told time.Time
	for {
		if c.quiet = time.Since(told) < reconcilePeriod; !c.quiet {
			told = time.Now()
		}
		findings, err := c.compare(ctx)
		if err != nil {
			c.log.Error("reconcile: can't compare the disk with the cluster", "err", err)
		} else {
			r.mu.Lock()
			r.latest.Time, r.latest.Findings = time.Now(), findings
			r.mu.Unlock()
		}
		period := reconcilePeriod
		if len(findings) > 0 {
			period = findingsPeriod
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		case <-c.changed:
			if sleep(ctx, changePause) != nil {
				return
			}
		}
	}
}

// comparison compares the volumes on the disk with the PersistentVolumes of the
// cluster. It reports what is missing on one side, and never removes anything,
// because it can't know which side is wrong.
type comparison struct {
	p       *provisioner.Provisioner
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	events  record.EventRecorder
	pod     *pod
	log     *slog.Logger
	changed bell // a comparison would find something new
	quiet   bool // the findings were reported recently: report new ones alone
	said    map[volume.Finding]bool
}

// watch wakes run when a PersistentVolume goes whose volume stays, and when somebody
// changes its reclaim policy or mount options, which the record is to have before the PersistentVolume goes.
func (c *comparison) watch(volumes cache.SharedIndexInformer) error {
	wake := c.changed.ring
	_, err := volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, pv := volumeOf(before), volumeOf(after)
			if old != nil && pv != nil && (old.Spec.PersistentVolumeReclaimPolicy != pv.Spec.PersistentVolumeReclaimPolicy || !slices.Equal(old.Spec.MountOptions, pv.Spec.MountOptions)) {
				wake()
			}
		},
		DeleteFunc: func(object any) {
			if pv := volumeOf(object); pv != nil {
				if _, err := c.p.Store.Get(pv.Name); err == nil {
					wake()
				}
			}
		},
	})
	return err
}

// compare compares once.
func (c *comparison) compare(ctx context.Context) ([]volume.Finding, error) {
	pvs, err := c.volumes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	onDisk, err := c.p.Store.Check()
	if err != nil {
		return nil, err
	}
	var findings []volume.Finding
	known := map[string]bool{}
	for _, pv := range pvs {
		if pv.Annotations[provisioner.InstanceAnnotation] != c.p.Store.Identity() {
			continue
		}
		known[pv.Name] = true
		if f := c.checkVolume(ctx, pv); f != nil {
			findings = append(findings, *f)
		}
	}
	var orphans []string
	for _, v := range c.p.Store.List() {
		// A volume without a claim was created by hand, and may be mounted by hand.
		if v.Claim != nil && !known[v.Name] && !c.isAwaited(&v) {
			orphans = append(orphans, v.Name)
			findings = append(findings, orphan(v))
		}
	}
	if address, err := c.p.Endpoint.Address(ctx); err == nil { // otherwise claims get the error
		if err := c.p.CheckDisk(address); err != nil {
			findings = append(findings, wrongDisk(err))
			if !c.quiet {
				c.pod.warn("AnotherDisk", err.Error())
			}
		}
	}
	said := c.said
	c.said = map[volume.Finding]bool{}
	isNew := func(f volume.Finding) bool { return !c.quiet || !said[f] }
	for _, f := range slices.Concat(onDisk, findings) {
		c.said[f] = true
		if isNew(f) {
			c.log.Warn("reconcile: "+f.Problem, "volume", f.Volume, "path", f.Path, "fix", f.Fix)
		}
	}
	if n := len(orphans); n > 0 && slices.ContainsFunc(findings, isNew) {
		c.pod.warn("VolumeWithoutPersistentVolume",
			fmt.Sprintf("%d volumes on the disk have no PersistentVolume: %s. They are kept; podnas doctor says what to do", n, volume.FormatNames(orphans)))
	}
	return findings, nil
}

// checkVolume compares one PersistentVolume with its volume.
func (c *comparison) checkVolume(ctx context.Context, pv *v1.PersistentVolume) *volume.Finding {
	v, err := c.p.Store.Get(pv.Name)
	if err == nil {
		if err := provisioner.CheckLeadsTo(pv, v); err != nil {
			return &volume.Finding{
				Volume: pv.Name, Path: v.Path, Problem: err.Error(),
				Fix: "make the PersistentVolume again, 'podnas volume manifests' prints it",
			}
		}
		c.note(ctx, pv, v)
		return checkSize(pv, v)
	}
	ending := pv.DeletionTimestamp != nil || pv.Status.Phase == v1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
	if ending {
		return nil // the volume is deleted first
	}
	f := &volume.Finding{
		Volume:  pv.Name,
		Problem: fmt.Sprintf("PersistentVolume %s has no volume on the disk: it can't be mounted", pv.Name),
		Fix:     "put the volume's directory and record back from a backup, or delete the PersistentVolume and its claim",
	}
	if errors.Is(err, volume.ErrRecord) {
		f.Problem = fmt.Sprintf("PersistentVolume %s can't be mounted: %v", pv.Name, err)
		f.Fix = "put the record right, see 'podnas doctor'; podnas does not delete the volume before"
	}
	if kept, err := c.p.Store.Kept(); err == nil {
		for _, k := range kept {
			if k.Name == pv.Name {
				f.Path = k.Path
				f.Problem += fmt.Sprintf("; it was deleted and is %s", k.State)
				f.Fix = "bring it back with 'podnas volume adopt " + k.Name + "', or delete the PersistentVolume and its claim"
			}
		}
	}
	if c.quiet || c.p.SureOfDisk(ctx) != nil {
		return f
	}
	message := f.Problem + ". To do: " + f.Fix
	c.events.Event(pv, v1.EventTypeWarning, "VolumeMissing", message)
	if pv.Spec.ClaimRef != nil {
		c.events.Event(pv.Spec.ClaimRef, v1.EventTypeWarning, "VolumeMissing", message)
	}
	return f
}

// checkSize finds a PersistentVolume with more capacity than its volume: its
// record was restored from before an expansion, or somebody edited the
// PersistentVolume.
func checkSize(pv *v1.PersistentVolume, v volume.Volume) *volume.Finding {
	capacity := pv.Spec.Capacity[v1.ResourceStorage]
	if capacity.Value() <= v.Size {
		return nil
	}
	return &volume.Finding{
		Volume: v.Name, Path: v.Path,
		Problem: fmt.Sprintf("its PersistentVolume says %s, the disk limits it to %s", capacity.String(), volume.FormatSize(v.Size)),
		Fix:     fmt.Sprintf("'podnas volume resize %s %s --force'", v.Name, capacity.String()),
	}
}

// note updates the record from the PersistentVolume: the claim it is bound to, if
// it was created without a claim or moved from another cluster, and changes by an
// administrator.
func (c *comparison) note(ctx context.Context, pv *v1.PersistentVolume, v volume.Volume) {
	ref := pv.Spec.ClaimRef
	var err error
	if pv.Status.Phase == v1.VolumeBound && ref != nil && (v.Claim == nil || v.Claim.UID != string(ref.UID)) {
		_, err = c.p.Store.Claim(ctx, v.Name, &volume.Claim{Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID)})
	}
	err = errors.Join(err, c.noteManifest(ctx, pv, v))
	if err != nil {
		c.log.Warn("reconcile: can't note in the volume's record what its PersistentVolume says", "volume", v.Name, "err", err)
	}
}

func (c *comparison) noteManifest(ctx context.Context, pv *v1.PersistentVolume, v volume.Volume) error {
	m, err := provisioner.ManifestOf(v)
	if err != nil {
		return err
	}
	spec := &pv.Spec
	labels := c.labelsOf(pv, m.ClaimLabels)
	changed := m.NoteMountOptions(pv)
	if !changed && m.ReclaimPolicy == spec.PersistentVolumeReclaimPolicy && m.StorageClassName == spec.StorageClassName && slices.Equal(m.AccessModes, spec.AccessModes) &&
		maps.Equal(labels, m.ClaimLabels) {
		return nil
	}
	m.ReclaimPolicy, m.StorageClassName, m.AccessModes, m.ClaimLabels = spec.PersistentVolumeReclaimPolicy, spec.StorageClassName, spec.AccessModes, labels
	data, err := m.Encode()
	if err == nil {
		_, err = c.p.Store.SetManifest(ctx, v.Name, data)
	}
	return err
}

// labelsOf returns the labels of the claim that a PersistentVolume is bound to. If there is none, they are those that were known.
func (c *comparison) labelsOf(pv *v1.PersistentVolume, known map[string]string) map[string]string {
	ref := pv.Spec.ClaimRef
	if pv.Status.Phase != v1.VolumeBound || ref == nil {
		return known
	}
	claim, err := c.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	if err != nil || claim.UID != ref.UID {
		return known
	}
	return claim.Labels
}

// isAwaited reports whether the PersistentVolume of a volume may be on its way.
func (c *comparison) isAwaited(v *volume.Volume) bool {
	claim, err := c.claims.PersistentVolumeClaims(v.Claim.Namespace).Get(v.Claim.Name)
	return err == nil && string(claim.UID) == v.Claim.UID && time.Since(v.Created) < youngVolume
}

// orphan is the finding about a volume without a PersistentVolume.
func orphan(v volume.Volume) volume.Finding {
	return volume.Finding{
		Volume: v.Name, Path: v.Path,
		Problem: fmt.Sprintf("it has no PersistentVolume, though claim %s/%s had it", v.Claim.Namespace, v.Claim.Name),
		Notice:  true,
		Fix:     "make it reachable for a claim of that name with 'podnas volume manifests " + v.Name + " | kubectl apply -f -' (--bind also makes the claim), or end it with 'podnas volume delete --force " + v.Name + "'",
	}
}

// wrongDisk turns an error of provisioner.Provisioner.CheckDisk into a finding.
func wrongDisk(err error) volume.Finding {
	return volume.Finding{
		Problem: "no volume is created: " + err.Error(),
		Fix:     "mount the right disk, or tell podnas with --new-disk that this one replaces it",
	}
}
