package provisioner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/nfs/mountoption"
)

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

// checkMountOptions returns the version of NFS that options ask for, and what would
// make a mount fail.
func checkMountOptions(options []string) (version string, problems []string) {
	const versions = "podnas serves NFS versions 3, 4.1 and 4.2; use nfsvers=3, nfsvers=4.1 or nfsvers=4.2, or remove it"
	setBy := "" // the option that sets version
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		v, sets := mountoption.Version(option), mountoption.Subject(option) == "nfsvers"
		switch {
		case sets && !slices.Contains([]string{"3", "4", "4.1", "4.2"}, v), key == "minorversion":
			problems = append(problems, fmt.Sprintf("mount option %s: %s", option, versions))
		case sets && setBy != "" && v != version:
			problems = append(problems, fmt.Sprintf("mount options %s and %s contradict each other: remove one of them", setBy, option))
		case sets:
			version, setBy = v, option
		case (key == "proto" || key == "mountproto") && strings.HasPrefix(value, "udp"), key == "udp":
			problems = append(problems, fmt.Sprintf("mount option %s: podnas serves only TCP; remove it", option))
		}
	}
	if !mountoption.Is4(version) {
		return version, problems
	}
	for _, option := range options {
		if mountoption.OnlyVersion3(option) {
			problems = append(problems, fmt.Sprintf("mount option %s is for NFS version 3, and %s asks for another: remove one of them", option, setBy))
		}
	}
	return version, problems
}

// chooseOptions returns an error if this podnas does not serve what a class's mount
// options ask for. A class that names no version, and sets nothing that only version 3 has, gets
// 4.2 where that is served: its locks hold between nodes, and programs copy without sending data.
// The choice is one of the class's mount options from then on, and so goes into the volume's record,
// where no version stands for 3: a PersistentVolume that is written again is the same, whatever
// podnas serves by then.
func (p *Provisioner) chooseOptions(class *parameters) error {
	if p.NoNFS4 == nil {
		if class.version == "" && !slices.ContainsFunc(class.mountOptions, mountoption.OnlyVersion3) {
			class.version = "4.2"
			class.mountOptions = append([]string{"nfsvers=4.2"}, class.mountOptions...)
		}
	}
	if !mountoption.Is4(class.version) {
		class.mountOptions = append(class.mountOptions, timeouts3(class.mountOptions)...)
		return nil
	}
	if p.NoNFS4 == nil {
		return nil
	}
	at := slices.IndexFunc(class.mountOptions, func(option string) bool { return mountoption.Subject(option) == "nfsvers" })
	return fmt.Errorf("mount option %s: %w; use nfsvers=3, or remove it", class.mountOptions[at], p.NoNFS4)
}

// timeouts3 returns the timeouts for volumes of version 3. A mount waits timeo tenths of a second, and retrans times more, before
// Linux gives up a connection that no longer answers: 30 s, and 180 without them (docs/internals/restarts.md says where this helps). With
// hard, which is the default, programs wait on. A class that has one of the two, or soft, keeps what it has. They go into the
// volume's record, so a volume that is there already keeps its options.
func timeouts3(options []string) []string {
	own := slices.ContainsFunc(options, func(option string) bool {
		return slices.Contains([]string{"timeo", "retrans", "soft", "softerr"}, mountoption.Subject(option))
	})
	if own {
		return nil
	}
	return []string{"timeo=100", "retrans=2"}
}

// MountVersion returns the version of NFS that a volume's PersistentVolume asks for: 4.2, 4.1, 4 (the highest
// that node and podnas have), or 3.
func MountVersion(v volume.Volume) string {
	m, err := ManifestOf(v)
	if err != nil {
		return "3" // RecordChecks of checkup finds it
	}
	version, _ := checkMountOptions(m.MountOptions)
	return cmp.Or(version, "3")
}

// ReadOnlyMount returns mount options with ro: kubelet does not read nfs.readOnly of a PersistentVolume.
func ReadOnlyMount(options []string) []string {
	writable := slices.DeleteFunc(slices.Clone(options), func(option string) bool { return option == "rw" || option == "ro" })
	return append(writable, "ro")
}

// withoutServer returns mount options without those that say how to reach the server, but for those that a class has.
func withoutServer(options, class []string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(option string) bool {
		return slices.Contains([]string{"proto", "port", "mountproto", "mountport"}, mountoption.Subject(option)) && !slices.Contains(class, option)
	})
}

// ClassOptions returns the export options of a StorageClass's volumes. The error
// says why no claim of it gets a volume.
func (p *Provisioner) ClassOptions(class *storagev1.StorageClass) (volume.Options, error) {
	params, err := p.parseClass(class)
	if err == nil {
		err = p.Store.CheckSchedule(params.schedule)
	}
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

// parseClass parses a StorageClass, refuses what this podnas does not serve, and chooses what it
// leaves open.
func (p *Provisioner) parseClass(class *storagev1.StorageClass) (parameters, error) {
	params, err := parseClass(class)
	if err == nil {
		err = p.chooseOptions(&params)
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
	if version, _ := checkMountOptions(class); !mountoption.Is4(version) {
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
		said[mountoption.Subject(option)] = true
	}
	var options []string
	for _, option := range ours {
		if !said[mountoption.Subject(option)] {
			options = append(options, option)
		}
	}
	return append(options, class...)
}
