package controller

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// What podnas says that it does, and what deploy/ lets it do, are the same.
func TestRightsAreThoseOfDeploy(t *testing.T) {
	data, err := os.ReadFile("../../deploy/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole // a Role's rules read the same
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" && role.Kind != "Role" {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted[role.Kind+" "+group+"/"+resource+" "+verb] = true
					}
				}
			}
		}
	}
	done := map[string]bool{}
	for _, r := range Rights() {
		kind := "ClusterRole"
		if r.Own {
			kind = "Role"
		}
		for _, verb := range r.Verbs {
			done[kind+" "+r.Group+"/"+r.Resource+" "+verb] = true
		}
		if r.Without == "" {
			t.Errorf("%s: it is not said what does not work without it", r.Resource)
		}
	}
	if len(granted) < 15 {
		t.Fatalf("read only %d rights from deploy/", len(granted))
	}
	if !maps.Equal(granted, done) {
		t.Errorf("deploy/ grants\n%q\nand podnas does\n%q", slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(done)))
	}
}
