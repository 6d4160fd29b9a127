package controller

// Right is something that podnas may do in the cluster.
type Right struct {
	Group    string // API group, empty for the core
	Resource string // with its subresource: persistentvolumeclaims/status
	Verbs    []string
	// Own limits it to podnas's own namespace.
	Own bool
	// Without says what does not work without it.
	Without string
}

// Rights are all rights that podnas needs in the cluster, including the library's
// controller. deploy/base/rbac.yaml grants these and no others. (podnas mounted needs
// one more, which deploy/components/drain grants, and not waiting for nodes that are out of service another, which
// deploy/components/node-failure grants.)
func Rights() []Right {
	return []Right{
		{"", "persistentvolumes", []string{"get", "list", "watch", "create", "patch", "delete"}, false, "no volume is created, expanded or deleted"},
		{"", "persistentvolumeclaims", []string{"get", "list", "watch"}, false, "podnas does not see or expand claims"},
		{"", "persistentvolumeclaims/status", []string{"patch"}, false, "the status of an expanded claim is not updated"},
		{"storage.k8s.io", "storageclasses", []string{"list", "watch"}, false, "no volume is created"},
		{"", "events", []string{"create", "patch"}, false, "claims get no events about problems"},
		{"", "events", []string{"list", "watch"}, false, "claims get no events about failed mounts"},
		{"coordination.k8s.io", "leases", []string{"list"}, false, "another podnas with the same provisioner name goes unnoticed"},
		{"coordination.k8s.io", "leases", []string{"get", "create", "update"}, true, "another podnas with the same provisioner name goes unnoticed, and volumes in use are not guarded"},
		{"", "services", []string{"get"}, true, "the address that nodes mount from is unknown, and no volume is created"},
		{"discovery.k8s.io", "endpointslices", []string{"list"}, true, "the address that nodes mount from is unknown, and no volume is created"},
	}
}
