package quota

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/dqblk_xfs.h and linux/quota.h, which golang.org/x/sys does not have.
const (
	projectQuota = 2 // PRJQUOTA

	qXGetQuota  = 'X'<<8 + 3 // Q_XGETQUOTA
	qXSetQLim   = 'X'<<8 + 4 // Q_XSETQLIM
	qXGetQStatV = 'X'<<8 + 8 // Q_XGETQSTATV
	qXGetNext   = 'X'<<8 + 9 // Q_XGETNEXTQUOTA

	diskQuotaVersion = 1      // FS_DQUOT_VERSION
	projectQuotaFlag = 2      // FS_PROJ_QUOTA
	limitInodesHard  = 1 << 1 // FS_DQ_IHARD
	limitBlocksHard  = 1 << 3 // FS_DQ_BHARD
	blockUnit        = 512    // limits and use are counted in these

	statVersion     = 1      // FS_QSTATV_VERSION1
	projectCounted  = 1 << 4 // FS_QUOTA_PDQ_ACCT
	projectEnforced = 1 << 5 // FS_QUOTA_PDQ_ENFD

	// From linux/fs.h.
	fsIocGetXattr    = 0x801c581f // FS_IOC_FSGETXATTR
	fsIocSetXattr    = 0x401c5820 // FS_IOC_FSSETXATTR
	xflagProjInherit = 0x200      // FS_XFLAG_PROJINHERIT
)

// diskQuota is struct fs_disk_quota.
type diskQuota struct {
	version, flags                        int8
	fieldMask                             uint16
	id                                    uint32
	blocksHard, blocksSoft                uint64
	inodesHard, inodesSoft                uint64
	blocks, inodes                        uint64
	inodeTimer, blockTimer                int32
	inodeWarnings, blockWarnings          uint16
	inodeTimerHi, blockTimerHi, rtTimerHi int8
	_                                     int8
	rtBlocksHard, rtBlocksSoft, rtBlocks  uint64
	rtTimer                               int32
	rtWarnings                            uint16
	_                                     int16
	_                                     [8]byte
}

// quotaState is struct fs_quota_statv; only its flags are read.
type quotaState struct {
	version int8
	_       uint8
	flags   uint16
	_       [156]byte
}

// fileAttributes is struct fsxattr.
type fileAttributes struct {
	xflags, extSize, extents, project, cowExtSize uint32
	_                                             [8]byte
}

// probe fills in how quotactl is called here, and says what is missing.
func (p *Projects) probe() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(p.root.Fd()), &fs); err != nil {
		return fmt.Errorf("statfs %s: %w", p.root.Name(), err)
	}
	turnOn := "mount it with -o prjquota (unmount it first: a remount does not turn quotas on)"
	switch fs.Type {
	case unix.XFS_SUPER_MAGIC:
		p.kind = "XFS"
	case unix.EXT4_SUPER_MAGIC:
		p.kind = "ext4"
		turnOn = "unmount it, run tune2fs -O project,quota -Q prjquota on its device, and mount it with -o prjquota"
	default:
		return &UnsupportedError{
			Reason: fmt.Sprintf("%s is not on XFS or ext4 (file system type %#x)", p.root.Name(), fs.Type),
			Fix:    "put it on an XFS or ext4 mounted with the option prjquota",
		}
	}
	// What setting a project takes, reading it takes too; any but 0 will do.
	_, err := p.usage(1)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.14, or no quota at all
		if p.device, err = deviceOf(p.root); err != nil {
			return err
		}
		if _, err := os.Stat(p.device); err != nil { // the quota call would take it for no quota
			return &UnsupportedError{
				Reason: fmt.Sprintf("this kernel can only set quotas through the disk's device, and %s can't be opened: %v", p.device, err),
				Fix:    "make the device available in the container, or use Linux 5.14 or later",
			}
		}
		_, err = p.usage(1)
	}
	if errors.Is(err, unix.EPERM) { // a container's seccomp filter says so too
		return &UnsupportedError{
			Reason: fmt.Sprintf("this process may not set project quotas on %s", p.root.Name()),
			Fix:    "run it as root with the capability CAP_SYS_ADMIN, outside a user namespace (in a cluster: deploy/overlays/xfs-quota)",
		}
	}
	// ESRCH and ENOSYS are what a mount without quotas answers.
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("read a project's quota: %w", err)
	}
	state := quotaState{version: statVersion}
	if err == nil {
		if err := p.quotactl(qXGetQStatV, 0, unsafe.Pointer(&state)); err != nil {
			return fmt.Errorf("read the quota state: %w", err)
		}
	}
	if state.flags&projectCounted == 0 || state.flags&projectEnforced == 0 {
		return &UnsupportedError{
			Reason: fmt.Sprintf("the %s at %s is mounted without enforced project quotas", p.kind, p.root.Name()),
			Fix:    turnOn,
		}
	}
	return nil
}

func (p *Projects) setLimit(id uint32, limit Limit) error {
	q := diskQuota{
		version:    diskQuotaVersion,
		flags:      projectQuotaFlag,
		fieldMask:  limitBlocksHard | limitInodesHard,
		id:         id,
		blocksHard: uint64(limit.Bytes+blockUnit-1) / blockUnit,
		inodesHard: uint64(limit.Inodes),
	}
	return p.quotactl(qXSetQLim, id, unsafe.Pointer(&q))
}

func (p *Projects) usage(id uint32) (Usage, error) {
	var q diskQuota
	err := p.quotactl(qXGetQuota, id, unsafe.Pointer(&q))
	if errors.Is(err, unix.ENOENT) { // nothing was ever counted for it
		return Usage{}, nil
	}
	if err != nil {
		return Usage{}, err
	}
	return q.usage(), nil
}

// nextUsage reads the usage of the project that has the lowest number from id
// on. found is false if there is none.
func (p *Projects) nextUsage(id uint32) (next uint32, u Usage, found bool, err error) {
	var q diskQuota
	err = p.quotactl(qXGetNext, id, unsafe.Pointer(&q))
	if errors.Is(err, unix.ENOENT) {
		return 0, Usage{}, false, nil
	}
	return q.id, q.usage(), err == nil, err
}

func (q *diskQuota) usage() Usage {
	return Usage{Bytes: int64(q.blocks * blockUnit), Inodes: int64(q.inodes), Limit: Limit{Bytes: int64(q.blocksHard * blockUnit), Inodes: int64(q.inodesHard)}}
}

// quotactl calls quotactl_fd(2), or quotactl(2) where a device is set.
func (p *Projects) quotactl(cmd uint32, id uint32, arg unsafe.Pointer) error {
	command := uintptr(cmd<<8 | projectQuota)
	if p.device == "" {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, p.root.Fd(), command, uintptr(id), uintptr(arg), 0, 0)
		return errnoError(errno)
	}
	device, err := unix.BytePtrFromString(p.device)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, command, uintptr(unsafe.Pointer(device)), uintptr(id), uintptr(arg), 0, 0)
	return errnoError(errno)
}

// assigned reports whether a directory has the project, and new entries will inherit
// it.
func assigned(dir *os.File, id uint32) (bool, error) {
	var a fileAttributes
	if err := ioctl(dir, fsIocGetXattr, &a); err != nil {
		return false, fmt.Errorf("FS_IOC_FSGETXATTR: %w", err)
	}
	return a.project == id && a.xflags&xflagProjInherit != 0, nil
}

// setProject sets a file's or directory's project. changed: it had another. New
// entries of a directory get the project if inherit is set.
func setProject(f *os.File, id uint32, inherit bool) (changed bool, err error) {
	var a fileAttributes
	if err := ioctl(f, fsIocGetXattr, &a); err != nil {
		return false, fmt.Errorf("FS_IOC_FSGETXATTR: %w", err)
	}
	want := a
	want.project = id
	if inherit {
		want.xflags |= xflagProjInherit
	}
	if want == a {
		return false, nil
	}
	if err := ioctl(f, fsIocSetXattr, &want); err != nil {
		return false, fmt.Errorf("FS_IOC_FSSETXATTR: %w", err)
	}
	return true, nil
}

func ioctl(f *os.File, request uintptr, a *fileAttributes) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a)))
	return errnoError(errno)
}

func errnoError(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// deviceOf finds the block device of a mounted file system by its device
// number in proc_pid_mountinfo(5).
func deviceOf(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, source := strings.Fields(before), strings.Fields(after)
		if len(fields) > 2 && fields[2] == number && len(source) > 1 {
			return source[1], nil
		}
	}
	return "", fmt.Errorf("no mount of device %s in /proc/self/mountinfo", number)
}
