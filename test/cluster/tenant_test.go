//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tenant is what a test has of the cluster: a namespace, and a provisioner name
// that nothing else answers to.
type tenant struct {
	t           testing.TB
	name        string
	provisioner string
}

// testProvisioners is what the names of all tenants' provisioners begin with.
const testProvisioners = "test.podnas.io/"

func newTenant(t testing.TB) *tenant {
	t.Helper()
	base := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	for i := 1; ; i++ {
		name := base
		if i > 1 {
			name = fmt.Sprintf("%s-%d", base, i) // a benchmark runs again
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := cluster.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
		if err == nil {
			return &tenant{t: t, name: name, provisioner: testProvisioners + name}
		}
		if !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// class makes a StorageClass. Its name is the tenant's with the suffix.
func (n *tenant) class(suffix string, change func(*storagev1.StorageClass)) string {
	n.t.Helper()
	reclaim, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: n.name + suffix},
		Provisioner:       n.provisioner,
		ReclaimPolicy:     &reclaim,
		VolumeBindingMode: &binding,
	}
	if change != nil {
		change(class)
	}
	if class.Parameters == nil {
		class.Parameters = map[string]string{}
	}
	if class.Parameters["privilegedPorts"] == "" {
		class.Parameters["privilegedPorts"] = "false" // the tests call as whatever user runs them
	}
	if _, err := cluster.client.StorageV1().StorageClasses().Create(n.t.Context(), class, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	return class.Name
}

// claim makes a claim for many nodes to write to.
func (n *tenant) claim(name, class, size string, change func(*corev1.PersistentVolumeClaim)) {
	n.t.Helper()
	if err := n.tryClaim(name, class, size, change); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tenant) tryClaim(name, class, size string, change func(*corev1.PersistentVolumeClaim)) error {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
	if change != nil {
		change(claim)
	}
	_, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Create(n.t.Context(), claim, metav1.CreateOptions{})
	return err
}

// burst makes many claims at once, by a few clients.
func (n *tenant) burst(count int, class string) {
	n.t.Helper()
	names := make(chan string)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for name := range names {
				if err := n.tryClaim(name, class, "1Mi", nil); err != nil {
					n.t.Error(err)
				}
			}
		})
	}
	for i := range count {
		names <- fmt.Sprintf("claim-%03d", i)
	}
	close(names)
	clients.Wait()
}

func (n *tenant) deleteClaim(name string) {
	n.t.Helper()
	if err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Delete(n.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// deleteClaims deletes all the tenant's claims.
func (n *tenant) deleteClaims() {
	n.t.Helper()
	claims, ok := n.claims()
	if !ok {
		n.t.Fatal("cannot list claims")
	}
	for _, c := range claims {
		n.deleteClaim(c.Name)
	}
}

// claims lists the tenant's claims. It answers false while the API server
// doesn't.
func (n *tenant) claims() ([]corev1.PersistentVolumeClaim, bool) {
	list, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, false
	}
	return list.Items, true
}

// volumes lists the PersistentVolumes of the tenant's classes.
func (n *tenant) volumes() []corev1.PersistentVolume {
	n.t.Helper()
	list, err := cluster.client.CoreV1().PersistentVolumes().List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(v corev1.PersistentVolume) bool {
		return !strings.HasPrefix(v.Spec.StorageClassName, n.name)
	})
}

// bound waits until the claim is bound, and returns its volume.
func (n *tenant) bound(name string) *corev1.PersistentVolume {
	n.t.Helper()
	var volume string
	eventually(n.t, time.Minute, "claim "+name+" is bound", func() bool {
		claim, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Get(n.t.Context(), name, metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimBound {
			return false
		}
		volume = claim.Spec.VolumeName
		return true
	})
	v, err := cluster.client.CoreV1().PersistentVolumes().Get(n.t.Context(), volume, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return v
}

// allBound waits until count claims are bound.
func (n *tenant) allBound(timeout time.Duration, count int) {
	n.t.Helper()
	eventually(n.t, timeout, fmt.Sprintf("%d claims are bound", count), func() bool { return n.countBound() == count })
}

// countBound is 0 also while the API server doesn't answer.
func (n *tenant) countBound() int {
	claims, _ := n.claims()
	bound := 0
	for _, c := range claims {
		if c.Status.Phase == corev1.ClaimBound {
			bound++
		}
	}
	return bound
}

// failure waits for an event that says why the claim has no volume.
func (n *tenant) failure(claim string) string {
	n.t.Helper()
	return n.event(n.name, claim, "ProvisioningFailed")
}

// gone waits until the PersistentVolume is deleted.
func (n *tenant) gone(volume string) {
	n.t.Helper()
	eventually(n.t, time.Minute, "volume "+volume+" is gone", func() bool {
		return !slices.ContainsFunc(n.volumes(), func(v corev1.PersistentVolume) bool { return v.Name == volume })
	})
}

// released waits until the PersistentVolume has lost its claim.
func (n *tenant) released(volume string) {
	n.t.Helper()
	eventually(n.t, time.Minute, "volume "+volume+" is released", func() bool {
		return slices.ContainsFunc(n.volumes(), func(v corev1.PersistentVolume) bool {
			return v.Name == volume && v.Status.Phase == corev1.VolumeReleased
		})
	})
}

// update changes a PersistentVolume, again if another did meanwhile.
func (n *tenant) update(volume string, change func(*corev1.PersistentVolume)) {
	n.t.Helper()
	api := cluster.client.CoreV1().PersistentVolumes()
	eventually(n.t, 10*time.Second, "volume "+volume+" is changed", func() bool {
		v, err := api.Get(n.t.Context(), volume, metav1.GetOptions{})
		if err != nil {
			return false
		}
		change(v)
		_, err = api.Update(n.t.Context(), v, metav1.UpdateOptions{})
		return err == nil
	})
}

// eventually polls until what is true, or fails the test.
func eventually(t testing.TB, timeout time.Duration, what string, isTrue func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for !isTrue() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", timeout, what)
		}
	}
}

// claimNow is a claim as it is.
func (n *tenant) claimNow(name string) *corev1.PersistentVolumeClaim {
	n.t.Helper()
	claim, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return claim
}

// grow has a claim ask for another size.
func (n *tenant) grow(name, size string) {
	n.t.Helper()
	if err := n.tryGrow(name, size); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tenant) tryGrow(name, size string) error {
	patch := fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, size)
	_, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Patch(n.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// grown waits until a claim has a size, and checks that it says so everywhere.
func (n *tenant) grown(name, size string) {
	n.t.Helper()
	want := resource.MustParse(size)
	eventually(n.t, time.Minute, "claim "+name+" has "+size, func() bool {
		claim, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Get(n.t.Context(), name, metav1.GetOptions{})
		return err == nil && claim.Status.Capacity.Storage().Cmp(want) == 0
	})
	claim := n.claimNow(name)
	if len(claim.Status.Conditions) != 0 || len(claim.Status.AllocatedResourceStatuses) != 0 {
		n.t.Errorf("claim %s has %s and still says %+v, %v", name, size, claim.Status.Conditions, claim.Status.AllocatedResourceStatuses)
	}
	v, err := cluster.client.CoreV1().PersistentVolumes().Get(n.t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || v.Spec.Capacity.Storage().Cmp(want) != 0 {
		n.t.Errorf("volume %s of claim %s has %s, want %s (%v)", claim.Spec.VolumeName, name, v.Spec.Capacity.Storage(), size, err)
	}
}

// event waits for an event with that reason on an object of that name, and
// returns its message.
func (n *tenant) event(namespace, name, reason string) string {
	n.t.Helper()
	var message string
	eventually(n.t, time.Minute, name+" has an event "+reason, func() bool {
		messages := n.events(namespace, name, reason)
		if len(messages) > 0 {
			message = messages[len(messages)-1]
		}
		return len(messages) > 0
	})
	return message
}

// events returns the messages of the events with that reason on an object.
func (n *tenant) events(namespace, name, reason string) []string {
	events, err := cluster.client.CoreV1().Events(namespace).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var messages []string
	for _, e := range events.Items {
		if e.InvolvedObject.Name == name && e.Reason == reason {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// apply makes a PersistentVolume, and a claim for it.
func (n *tenant) apply(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	n.t.Helper()
	_, err := cluster.client.CoreV1().PersistentVolumes().Create(n.t.Context(), v, metav1.CreateOptions{})
	if err == nil && claim != nil {
		_, err = cluster.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(n.t.Context(), claim, metav1.CreateOptions{})
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// forget has the cluster lose the tenant's claims and volumes, as one does that is made
// anew: podnas is not asked.
func (n *tenant) forget() {
	n.t.Helper()
	n.deleteClaims()
	eventually(n.t, time.Minute, "the claims are gone", func() bool {
		claims, ok := n.claims()
		return ok && len(claims) == 0
	})
	for _, v := range n.volumes() {
		if err := cluster.client.CoreV1().PersistentVolumes().Delete(n.t.Context(), v.Name, metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
		n.unhold(v.Name)
		n.gone(v.Name)
	}
}
