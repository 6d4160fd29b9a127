package provisioner

// Right is something that podnas does in the cluster.
type Right struct {
	Group    string // of the API, empty for the core
	Resource string // with its subresource: persistentvolumeclaims/status
	Verbs    []string
	// Own: in podnas's own namespace, not in all.
	Own bool
	// Without says what does not work without it.
	Without string
}

// Rights are all that podnas does in the cluster, the library's controller
// included. deploy/base/rbac.yaml grants these and no others. (What podnas drain needs
// beyond, deploy/components/drain grants while it is there.)
func Rights() []Right {
	return []Right{
		{"", "persistentvolumes", []string{"get", "list", "watch", "create", "update", "patch", "delete"}, false, "no volume is made, expanded or deleted"},
		{"", "persistentvolumeclaims", []string{"get", "list", "watch"}, false, "claims are not seen, or not expanded"},
		{"", "persistentvolumeclaims/status", []string{"patch"}, false, "a claim that was expanded does not say so"},
		{"storage.k8s.io", "storageclasses", []string{"list", "watch"}, false, "no volume is made"},
		{"", "events", []string{"create", "patch"}, false, "what is wrong with a claim is not said on it"},
		{"", "events", []string{"list", "watch"}, false, "why a pod can't mount a volume is not said on its claim"},
		{"coordination.k8s.io", "leases", []string{"list"}, false, "another podnas with the same provisioner name goes unnoticed"},
		{"coordination.k8s.io", "leases", []string{"get", "create", "update"}, true, "another podnas with the same provisioner name goes unnoticed, and nothing guards the volumes in use"},
		{"", "services", []string{"get"}, true, "where nodes mount from is not known, and no volume is made"},
		{"discovery.k8s.io", "endpointslices", []string{"list"}, true, "where nodes mount from is not known, and no volume is made"},
	}
}
