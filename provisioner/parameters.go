package provisioner

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podnas/podnas/internal/volume"
)

// groupMode is the mode of a volume's root directory if the class sets a group:
// the group may write, and new files inherit it. Others may search the directory,
// because kubelet reads its attributes as root, and a class may squash root.
const groupMode = 0o2771

// noResvport is the mount option that lets the kernel call from any port (nfs(5)).
const noResvport = "noresvport"

// parameters is what a StorageClass says about its volumes.
type parameters struct {
	uid, gid, mode uint32 // of the root directory; mode 0 stands for 0777
	bytesPerInode  int64  // 0: the store's default
	options        volume.Options
	onDelete       volume.OnDelete
	path           pathPattern // nil: the volume's name
	overcommit     float64     // 0: the disk's
	schedule       volume.Schedule
	reserve        *int // for snapshots, in percent; nil: the default
	mountOptions   []string
	version        string // of NFS, by mountOptions; "4" is the highest of 4 that both sides have, "" podnas's choice
	saysPorts      bool   // the class has privilegedPorts
}

// parseClass parses a StorageClass. It refuses what it does not understand,
// because ignoring it would give the user something else than requested. The error
// lists everything that is wrong.
func parseClass(class *storagev1.StorageClass) (parameters, error) {
	p := parameters{mountOptions: splitOptions(class.MountOptions)}
	var problems []string
	given, lost := map[string]bool{}, false
	for _, name := range slices.Sorted(maps.Keys(class.Parameters)) {
		known, ok := findParameter(name)
		var err error
		switch {
		case !ok:
			advice := adviceFor(name)
			err = fmt.Errorf("unknown parameter %s%s", name, advice)
			lost = lost || advice == ""
		case given[known.Name]:
			err = fmt.Errorf("parameter %s is set twice: remove %s", known.Name, name)
		default:
			given[known.Name] = true
			if err = known.set(&p, strings.TrimSpace(class.Parameters[name])); err != nil {
				err = fmt.Errorf("parameter %s: %w", known.Name, err)
			}
		}
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	version, wrong := checkMountOptions(p.mountOptions)
	p.version, problems = version, append(problems, wrong...)
	if p.options.PrivilegedPorts && slices.Contains(p.mountOptions, noResvport) {
		problems = append(problems, "mount option "+noResvport+": with it, privilegedPorts refuses every mount; remove one of them")
	}
	if lost {
		problems = append(problems, "the parameters are "+strings.Join(parameterNames(), ", "))
	}
	if len(problems) > 0 {
		return parameters{}, errors.New(strings.Join(problems, "; "))
	}
	if p.gid != 0 && p.mode == 0 {
		p.mode = groupMode
	}
	return p, nil
}

// spec returns the Spec of a volume.
func (p *parameters) spec(name string, size int64, m Manifest) (volume.Spec, error) {
	manifest, err := m.Encode()
	return volume.Spec{
		Name:          name,
		Size:          size,
		BytesPerInode: p.bytesPerInode,
		UID:           p.uid,
		GID:           p.gid,
		Mode:          p.mode,
		Options:       p.options,
		OnDelete:      p.onDelete,
		Overcommit:    p.overcommit,
		Schedule:      p.schedule,

		SnapshotReserve: p.reserve,
		Manifest:        manifest,
	}, err
}

// findParameter finds a parameter by its name in a class.
func findParameter(name string) (Parameter, bool) {
	// The Ganesha provisioner ignores the case of these three.
	ganesha := []string{"gid", "rootSquash", "mountOptions"}
	for _, known := range Parameters() {
		if known.Name == name || strings.EqualFold(known.Name, name) && slices.Contains(ganesha, known.Name) {
			return known, true
		}
	}
	return Parameter{}, false
}

func parameterNames() []string {
	var names []string
	for _, known := range Parameters() {
		names = append(names, known.Name)
	}
	return names
}

// adviceFor says what to do about an unknown parameter, if it is another
// provisioner's or misspelled.
func adviceFor(name string) string {
	switch {
	case strings.HasPrefix(name, "csi.storage.k8s.io/"):
		return ": it is for CSI drivers; remove it"
	case name == "server" || name == "share":
		return ": podnas serves the volumes itself; remove it"
	case name == "archiveOnDelete":
		return `: use onDelete, which is "delete", "archive" or "retain"`
	case name == "secure" || name == "insecure" || strings.EqualFold(name, "privilegedPort"):
		return ": use privilegedPorts"
	case name == "subDir":
		return ": use pathPattern"
	case name == "mountPermissions":
		return ": use mode"
	}
	if near, ok := nearest(name, parameterNames()); ok {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return ""
}

func setBool(to *bool, value string) error {
	b, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf(`%q is neither "true" nor "false"`, value)
	}
	*to = b
	return nil
}

// setID sets a user or group id. It refuses 0, which means "not set" in the target
// field; nobody wants to squash users to root.
func setID(to *uint32, value string) error {
	id, err := strconv.ParseUint(value, 10, 32)
	if err != nil || id == 0 || id == math.MaxUint32 {
		return fmt.Errorf("%q is not an id: use a number from 1 to %d", value, uint32(math.MaxUint32-1))
	}
	*to = uint32(id)
	return nil
}

func (p *parameters) setGID(value string) error {
	if strings.EqualFold(value, "none") {
		return nil
	}
	if err := setID(&p.gid, value); err != nil {
		return fmt.Errorf(`%w, or "none"`, err)
	}
	return nil
}

func (p *parameters) setBytesPerInode(value string) error {
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Value() < volume.MinBytesPerInode {
		return fmt.Errorf(`%q is not a size, or too small: use a quantity of %d or more, for example "16Ki" for one inode for each 16 KiB of a volume`, value, volume.MinBytesPerInode)
	}
	p.bytesPerInode = q.Value()
	return nil
}

func (p *parameters) setMode(value string) error {
	mode, err := strconv.ParseUint(strings.TrimPrefix(value, "0o"), 8, 32)
	if err != nil || mode == 0 || mode > 0o7777 {
		return fmt.Errorf(`%q is not a mode: use octal digits, for example "0770"`, value)
	}
	p.mode = uint32(mode)
	return nil
}

// setClients parses networks and single addresses.
func (p *parameters) setClients(value string) error {
	var wrong []string
	for _, s := range strings.Split(value, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		network, err := netip.ParsePrefix(s)
		if err != nil {
			var address netip.Addr
			if address, err = netip.ParseAddr(s); err == nil && address.Zone() == "" {
				network = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
			}
		}
		switch {
		case err != nil || !network.IsValid():
			wrong = append(wrong, strconv.Quote(s)+" is neither a network nor an address")
		case network.Masked() != network:
			wrong = append(wrong, fmt.Sprintf("%s has host bits: use %s for the network, or only the address", s, network.Masked()))
		default:
			p.options.Clients = append(p.options.Clients, network)
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, ", "))
	}
	if len(p.options.Clients) == 0 {
		return errors.New(`it is empty: use networks, for example "10.0.0.0/8,fd00::/8", or remove it`)
	}
	return nil
}

func (p *parameters) setPrivilegedPorts(value string) error {
	p.saysPorts = true
	return setBool(&p.options.PrivilegedPorts, value)
}

// defaultPorts sets the default of privilegedPorts: true in a cluster, where kubelet
// mounts by the kernel, from privileged ports. Outside of a cluster other programs
// mount too.
func (p *parameters) defaultPorts(inCluster bool) {
	if !p.saysPorts {
		p.options.PrivilegedPorts = inCluster && !slices.Contains(p.mountOptions, noResvport)
	}
}

func (p *parameters) setSync(value string) error {
	sync := true
	err := setBool(&sync, value)
	p.options.Async = !sync
	return err
}

func (p *parameters) setOnDelete(value string) error {
	switch d := volume.OnDelete(value); d {
	case volume.DeleteFiles, volume.ArchiveFiles, volume.RetainFiles:
		p.onDelete = d
		return nil
	}
	return fmt.Errorf(`%q is unknown: use "delete", "archive" or "retain"`, value)
}

func (p *parameters) setPathPattern(value string) (err error) {
	p.path, err = parsePathPattern(value)
	return err
}

func (p *parameters) setSchedule(value string) (err error) {
	p.schedule, err = volume.ParseSchedule(value)
	return err
}

func (p *parameters) setReserve(value string) error {
	percent, err := volume.ParseSnapshotReserve(value)
	if err != nil {
		return err
	}
	p.reserve = &percent
	return nil
}

func (p *parameters) setOvercommit(value string) error {
	factor, err := strconv.ParseFloat(value, 64)
	if err != nil || factor <= 0 || math.IsInf(factor, 0) || math.IsNaN(factor) {
		return fmt.Errorf(`%q is not a factor: use a number above 0, for example "2" for twice the size of the disk`, value)
	}
	p.overcommit = factor
	return nil
}

// setMountOptions parses the parameter that StorageClasses had before their field
// mountOptions. The field takes precedence, as in the Ganesha provisioner.
func (p *parameters) setMountOptions(value string) error {
	if len(p.mountOptions) == 0 {
		p.mountOptions = splitOptions([]string{value})
	}
	return nil
}
