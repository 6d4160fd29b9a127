package snapshots

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// What podnas may not list of the API is why it does not serve it: without that its watches would wait without an end.
func TestNotServedWithoutARight(t *testing.T) {
	lists := map[schema.GroupVersionResource]string{classResource: "VolumeSnapshotClassList", snapshotResource: "VolumeSnapshotList", contentResource: "VolumeSnapshotContentList"}
	for _, lacks := range []string{"", classResource.Resource, snapshotResource.Resource, contentResource.Resource} {
		t.Run(lacks, func(t *testing.T) {
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
			client.PrependReactor("list", lacks, func(clienttesting.Action) (bool, runtime.Object, error) {
				return lacks != "", nil, errors.New("forbidden")
			})
			api := kubefake.NewClientset()
			api.Resources = []*metav1.APIResourceList{{GroupVersion: groupVersion.String()}}
			c := &Controller{Client: client, Discovery: api.Discovery(), Driver: testDriver, Log: slog.New(slog.DiscardHandler)}
			if served := c.isServed(t.Context()); served != (lacks == "") {
				t.Errorf("served: %v", served)
			}
			_, why := c.current()
			if lacks != "" && (why == nil || !strings.Contains(why.Error(), "list "+lacks+": forbidden")) {
				t.Errorf("the reason is %v", why)
			}
			if results := c.Findings(); len(results) != min(len(lacks), 1) {
				t.Errorf("findings: %+v", results)
			}
		})
	}
}
