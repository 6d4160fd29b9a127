package shareddisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/pr.h and scsi/sg.h, which golang.org/x/sys does not have.
const (
	prRegister        = 0x401870c8 // IOC_PR_REGISTER
	prReserve         = 0x401070c9 // IOC_PR_RESERVE
	prPreemptAbort    = 0x401870cc // IOC_PR_PREEMPT_ABORT
	prReadReservation = 0x801070cf // IOC_PR_READ_RESERVATION, since Linux 6.19 or 7.0

	prIgnoreKey     = 1 // PR_FL_IGNORE_KEY
	prRegistrants   = 3 // PR_WRITE_EXCLUSIVE_REG_ONLY
	scsiRegistrants = 5 // the same, as the storage says it
	scsiConflict    = 0x18

	sgIO = 0x2285 // SG_IO
)

// registration is struct pr_registration.
type registration struct {
	_, key uint64 // the one before, which is ignored, and the new one
	flags  uint32
	_      uint32
}

// reservation is struct pr_reservation.
type reservation struct {
	key  uint64
	kind uint32
	_    uint32
}

// preemption is struct pr_preempt. Its field old_key is one's own key, and new_key the victim's.
type preemption struct {
	own, victim uint64
	kind        uint32
	_           uint32
}

// held is struct pr_read_reservation.
type held struct {
	key  uint64
	_    uint32
	kind uint32
}

// sgHeader is struct sg_io_hdr.
type sgHeader struct {
	id        int32
	direction int32
	cmdLen    uint8
	senseMax  uint8
	_         uint16
	dataLen   uint32
	data      unsafe.Pointer
	cmd       unsafe.Pointer
	sense     unsafe.Pointer
	timeout   uint32 // in milliseconds
	_         uint32
	_         int32
	_         unsafe.Pointer
	status    uint8
	_         [3]uint8
	host      uint16
	_         uint16
	_         int32
	_         [2]uint32
}

// needs is what the storage must be able to do.
const needs = "--shared-disk needs a disk with SCSI-3 persistent reservations that outlive a loss of power (APTPL; with LIO there must be the folder /var/target/pr), or an NVMe namespace with reservations and Linux 7"

// control calls an ioctl. Its result is a status of SCSI, 0 if all is well.
func control[T any](f *os.File, request uintptr, arg *T) (status uintptr, errno unix.Errno) {
	status, _, errno = unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(arg)))
	return status, errno
}

// reserving calls an ioctl about reservations. A storage tells each nexus once what others have done meanwhile (unit
// attention), instead of doing what it is told.
func reserving[T any](f *os.File, what string, request uintptr, arg *T) error {
	var status uintptr
	for range 3 {
		var errno unix.Errno
		status, errno = control(f, request, arg)
		switch {
		case errno != 0:
			return explainReserving(what, errno)
		case status == 0:
			return nil
		case status&0xff == scsiConflict:
			return errConflict
		}
	}
	return statusError(what, status)
}

// statusError is of a status that is not 0. Its bits from 16 on are the host's: the command has not reached the storage.
func statusError(what string, status uintptr) error {
	if status>>16 != 0 {
		return fmt.Errorf("%s: the storage can't be reached (status %#x)", what, status)
	}
	return fmt.Errorf("%s: the storage answered with status %#x; %s", what, status, needs)
}

func explainReserving(what string, errno unix.Errno) error {
	switch errno {
	case unix.EBADE:
		return errConflict
	case unix.EPERM, unix.EACCES:
		return permanentError{fmt.Errorf("%s: %w: it needs CAP_SYS_ADMIN and CAP_SYS_RAWIO, in a cluster a privileged pod (deploy/overlays/ha)", what, errno)}
	case unix.EOPNOTSUPP, unix.ENOTTY, unix.EINVAL:
		return permanentError{fmt.Errorf("%s: %w; %s", what, errno, needs)}
	}
	return fmt.Errorf("%s: %w", what, errno)
}

func (d *device) register(key uint64) error {
	return reserving(d.file, "register at the disk", prRegister, &registration{key: key, flags: prIgnoreKey})
}

func (d *device) reserve(key uint64) error {
	return reserving(d.file, "reserve the disk", prReserve, &reservation{key: key, kind: prRegistrants})
}

func (d *device) preempt(key, victim uint64) error {
	return reserving(d.file, "take the disk over", prPreemptAbort, &preemption{own: key, victim: victim, kind: prRegistrants})
}

const readingHolder = "read the reservation of the disk"

// holder asks the kernel, or an older one that can't tell, as all were until the end of 2025, the storage itself.
func (d *device) holder() (uint64, error) {
	var h held
	status, errno := control(d.file, prReadReservation, &h)
	switch {
	case errno == unix.ENOTTY || errno == unix.EINVAL || errno == unix.EOPNOTSUPP:
		return d.askHolder()
	case errno != 0:
		return 0, explainReserving(readingHolder, errno)
	case status != 0:
		return 0, statusError(readingHolder, status)
	case h.kind != 0 && h.kind != prRegistrants:
		return 0, errOtherKind
	}
	return h.key, nil
}

// errOtherKind is of a disk that something else has reserved.
var errOtherKind = permanentError{errors.New("the disk has a reservation that podnas does not make, so something else uses it, such as another cluster: podnas does not take it")}

// askHolder sends the command PERSISTENT RESERVE IN, READ RESERVATION.
func (d *device) askHolder() (uint64, error) {
	const timeout = 10_000
	cmd, data, sense := new([10]byte), new([24]byte), new([64]byte)
	cmd[0], cmd[1], cmd[8] = 0x5e, 0x01, byte(len(data))
	h := &sgHeader{
		id: 'S', direction: -3, cmdLen: uint8(len(cmd)), senseMax: uint8(len(sense)), dataLen: uint32(len(data)),
		data: unsafe.Pointer(data), cmd: unsafe.Pointer(cmd), sense: unsafe.Pointer(sense), timeout: timeout,
	}
	for range 3 { // as in reserving
		_, errno := control(d.file, sgIO, h)
		runtime.KeepAlive(h)
		switch {
		case errno != 0:
			return 0, explainReserving(readingHolder, errno)
		case h.status == 0 && h.host == 0:
			return decodeHolder(data[:])
		case h.status == 2 && sense[2]&0xf == 5: // illegal request
			return 0, permanentError{fmt.Errorf("%s: the storage does not know the command; %s", readingHolder, needs)}
		}
	}
	return 0, fmt.Errorf("%s: the storage answered with status %#x, the host with %#x", readingHolder, h.status, h.host)
}

// decodeHolder decodes the answer to READ RESERVATION.
func decodeHolder(data []byte) (uint64, error) {
	if binary.BigEndian.Uint32(data[4:]) < 16 { // nobody has it
		return 0, nil
	}
	if data[21]&0xf != scsiRegistrants {
		return 0, errOtherKind
	}
	return binary.BigEndian.Uint64(data[8:]), nil
}
