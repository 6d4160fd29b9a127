package provisioner

import (
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/volume"
)

// nfsVersion is the version of NFS that a mount asks for: "3", "4.1", or "4" for the
// highest minor version that client and server have. Empty is 3.
type nfsVersion string

// is4 reports whether it is version 4, whatever the minor one.
func (v nfsVersion) is4() bool { return strings.HasPrefix(string(v), "4") }

// splitOptions splits mount options at commas: kubelet joins them with commas, so
// one entry may contain several.
func splitOptions(lists []string) []string {
	var options []string
	for _, list := range lists {
		for _, option := range strings.Split(list, ",") {
			if option = strings.TrimSpace(option); option != "" {
				options = append(options, option)
			}
		}
	}
	return options
}

// versionIn returns the version of NFS that a mount option sets (nfs(5)). mount.nfs
// takes v3 and v4.1 as well.
func versionIn(option string) (v nfsVersion, ok bool) {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "nfsvers", "vers":
		return nfsVersion(value), true
	case "v2", "v3", "v4", "v4.0", "v4.1", "v4.2":
		return nfsVersion(key[1:]), true
	}
	return "", false
}

// checkMountOptions returns the version of NFS that options ask for, and what would
// make a mount fail.
func checkMountOptions(options []string) (version nfsVersion, problems []string) {
	const versions = "podnas serves NFS versions 3 and 4.1; use nfsvers=3 or nfsvers=4.1, or remove it for version 3"
	setBy := "" // the option that sets version
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		v, ok := versionIn(option)
		switch {
		case ok && !slices.Contains([]nfsVersion{"3", "4", "4.1"}, v), key == "minorversion":
			problems = append(problems, fmt.Sprintf("mount option %s: %s", option, versions))
		case ok && setBy != "" && v != version:
			problems = append(problems, fmt.Sprintf("mount options %s and %s contradict each other: remove one of them", setBy, option))
		case ok:
			version, setBy = v, option
		case (key == "proto" || key == "mountproto") && strings.HasPrefix(value, "udp"), key == "udp":
			problems = append(problems, fmt.Sprintf("mount option %s: podnas serves only TCP; remove it", option))
		}
	}
	if !version.is4() {
		return version, problems
	}
	for _, option := range options {
		switch subject := optionSubject(option); subject {
		case "lock", "local_lock", "mountport", "mountproto", "mountvers", "mounthost":
			problems = append(problems, fmt.Sprintf("mount option %s is for NFS version 3, and %s asks for another: remove one of them", option, setBy))
		}
	}
	return version, problems
}

// checkVersion returns an error if this podnas does not serve what a class's mount
// options ask for.
func (p *Provisioner) checkVersion(class *parameters) error {
	if !class.version.is4() || p.NoNFS4 == nil {
		return nil
	}
	at := slices.IndexFunc(class.mountOptions, func(option string) bool { _, ok := versionIn(option); return ok })
	return fmt.Errorf("mount option %s: %w; use nfsvers=3, or remove it", class.mountOptions[at], p.NoNFS4)
}

// MountsAs4 reports whether a volume's PersistentVolume asks for version 4.
func MountsAs4(v volume.Volume) bool {
	m, err := ManifestOf(v)
	if err != nil {
		return false // RecordChecks of checkup finds it
	}
	version, _ := checkMountOptions(m.MountOptions)
	return version.is4()
}

// ClassOptions returns the export options of a StorageClass's volumes. The error
// says why no claim of it gets a volume.
func (p *Provisioner) ClassOptions(class *storagev1.StorageClass) (volume.Options, error) {
	params, err := p.parseClass(class)
	return params.options, err
}

// ClassMountOptions returns the mount options of a StorageClass, one per element.
func ClassMountOptions(class *storagev1.StorageClass) []string {
	p, err := parseClass(class)
	if err != nil {
		return nil
	}
	return p.mountOptions
}

// parseClass parses a StorageClass, and refuses what this podnas does not serve.
func (p *Provisioner) parseClass(class *storagev1.StorageClass) (parameters, error) {
	params, err := parseClass(class)
	if err == nil {
		err = p.checkVersion(&params)
	}
	return params, err
}

// mountOptions returns options with which a mount needs only mount.nfs on the node
// (nfs(5)). With NFSv3 these are for MOUNT, so that rpcbind is not asked for ports,
// and against locks, so that no statd is needed; version 4 has neither. The class's own
// options follow. An option of the class replaces ours of the same subject,
// because kubelet sorts the options, so their order has no meaning.
func mountOptions(address Address, class []string) []string {
	proto := "tcp"
	if address.IP.Is6() {
		proto = "tcp6"
	}
	ours := []string{"nfsvers=3", "proto=" + proto, fmt.Sprintf("port=%d", address.Port)}
	if version, _ := checkMountOptions(class); !version.is4() {
		ours = append(
			ours,
			fmt.Sprintf("mountport=%d", address.Port),
			"mountproto="+proto,
			// Without it umount.nfs queries rpcbind, at an address where nothing answers that
			// port: each pod took ten seconds longer to end.
			"mountvers=3",
			"nolock",
		)
	}
	said := map[string]bool{}
	for _, option := range class {
		said[optionSubject(option)] = true
	}
	var options []string
	for _, option := range ours {
		if !said[optionSubject(option)] {
			options = append(options, option)
		}
	}
	return append(options, class...)
}

// optionSubject is the subject of a mount option: two options with the same
// subject contradict or repeat each other.
func optionSubject(option string) string {
	if _, ok := versionIn(option); ok {
		return "nfsvers"
	}
	key, _, _ := strings.Cut(option, "=")
	switch key {
	case "proto", "tcp", "tcp6":
		return "proto"
	case "lock", "nolock":
		return "lock"
	}
	return key
}
