package checkup

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
)

// pair is a podnas with a standby, on one claim.
type pair struct {
	set     *appsv1.StatefulSet
	pods    [2]*v1.Pod
	claim   *v1.PersistentVolumeClaim
	service *v1.Service
}

func newPair() *pair {
	p := &pair{}
	for i := range p.pods {
		d := newDeployed()
		p.set, p.pods[i], p.claim = d.set, d.pod, d.claim
		d.claim.Name = "podnas-disk"
		d.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "podnas-disk"
		d.pod.Labels = map[string]string{active.RoleLabel: active.RoleStandby}
	}
	p.pods[1].Name, p.pods[1].UID = "podnas-1", "uid of podnas-1"
	p.pods[1].Labels[active.RoleLabel] = active.RoleActive
	two := int32(2)
	p.set.Spec.Replicas, p.set.Spec.ServiceName = &two, "podnas"
	p.set.Spec.Template.Labels = map[string]string{active.RoleLabel: active.RoleStandby}
	p.set.Spec.VolumeClaimTemplates = nil
	p.service = &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "podnas", Name: "podnas"}}
	p.service.Spec.Selector = map[string]string{active.RoleLabel: active.RoleActive}
	return p
}

// TestOutsideOfPair: what is wrong with a podnas that has a standby, and whether none serves.
func TestOutsideOfPair(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*pair)
		check  string // whose result is other than OK; empty: none's
		status doctor.Status
		says   string
		down   bool
	}{
		"all is well": {change: func(*pair) {}},
		"nobody is active": {
			change: func(p *pair) { p.pods[1].Labels[active.RoleLabel] = active.RoleStandby },
			check:  "active", status: doctor.Failed, says: "the Service leads nowhere",
		},
		"both are": {
			change: func(p *pair) { p.pods[0].Labels[active.RoleLabel] = active.RoleActive },
			check:  "active", status: doctor.Warning, says: "podnas-0 and podnas-1 have the label",
		},
		"the active one is not ready": {
			change: func(p *pair) { p.pods[1].Status.Conditions = nil },
			check:  "active", status: doctor.Failed, says: "podnas-1 is active, and not ready",
		},
		"the standby is not ready": {
			change: func(p *pair) { p.pods[0].Status.Conditions = nil },
			check:  "standby", status: doctor.Warning, says: "no pod is ready to take over",
		},
		"the standby is not there": {
			change: func(p *pair) { p.pods[0] = nil },
			check:  "statefulset", status: doctor.Failed, says: "its pod podnas-0 is not created",
		},
		"it is being deleted": {
			change: func(p *pair) { now := longAgo(); p.set.DeletionTimestamp, p.set.Finalizers = &now, []string{"a/b"} },
			check:  "statefulset", status: doctor.Failed, says: "it is being deleted",
		},
		"none runs": {
			change: func(p *pair) { p.pods = [2]*v1.Pod{} },
			check:  "active", status: doctor.Failed, says: "no pod has the label", down: true,
		},
		"the Service leads to both": {
			change: func(p *pair) { p.service.Spec.Selector = map[string]string{"app.kubernetes.io/name": "podnas"} },
			check:  "service", status: doctor.Failed, says: "leads to standbys, too",
		},
		"there is no Service": {change: func(p *pair) { p.service = nil }, check: "service", status: doctor.Failed, says: "there is no Service podnas"},
		"the claim is not there": {
			change: func(p *pair) { p.claim.Name = "other" },
			check:  "claim podnas-disk", status: doctor.Failed, says: "does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair()
			tt.change(p)
			objects := []runtime.Object{p.set, p.claim}
			for _, pod := range p.pods {
				if pod != nil {
					objects = append(objects, pod)
				}
			}
			if p.service != nil {
				objects = append(objects, p.service)
			}
			o := &Outside{Client: fake.NewClientset(objects...), Namespace: "podnas", Name: "podnas"}
			results, down := o.Look(t.Context())
			if down != tt.down {
				t.Errorf("it is down: %t", down)
			}
			found := tt.check == ""
			claims, deleted := 0, 0
			for _, r := range results {
				if strings.HasPrefix(r.Check, "claim ") {
					claims++
				}
				if strings.Contains(r.Says, "is being deleted") {
					deleted++
				}
				switch {
				case r.Check == tt.check && r.Status == tt.status && strings.Contains(r.Says, tt.says) && r.Fix != "":
					found = true
				case tt.check == "" && r.Status != doctor.OK:
					t.Errorf("%+v", r)
				}
			}
			if !found || claims > 1 || deleted > 1 {
				t.Errorf("no %s of %s that says %q, or %d checks of the one claim, or the same twice, in %+v", tt.status, tt.check, tt.says, claims, results)
			}
		})
	}
}
