package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// Sattr are attributes to set. Mask is which of them are given, and may have any bit.
// The fields are set up to the first attribute that has none here, for which SETATTR,
// CREATE and OPEN fail as a whole.
type Sattr struct {
	Mask   Bitmap
	Others bool // there are bits that Mask has no room for

	Size          uint64
	ACL           []ACE
	Mode          uint32
	Owner         []byte
	OwnerGroup    []byte
	TimeAccess    SetTime
	TimeModify    SetTime
	ModeSetMasked ModeMasked
	ModeUmask     ModeUmask
}

// SettableAttrs returns the attributes that have a field in Sattr.
func SettableAttrs() Bitmap {
	return BitmapOf(AttrSize, AttrACL, AttrMode, AttrOwner, AttrOwnerGroup,
		AttrTimeAccessSet, AttrTimeModifySet, AttrModeSetMasked, AttrModeUmask)
}

// append appends a fattr4 of the attributes that have a field.
func (s *Sattr) append(b []byte) []byte {
	mask := s.Mask.And(SettableAttrs())
	b = mask.append(b)
	b, at := xdr.Reserve(b)
	for attr, ok := mask.next(0); ok; attr, ok = mask.next(attr + 1) {
		b = s.appendValue(b, attr)
	}
	xdr.Patch(b, at, uint32(len(b)-at-4))
	return b
}

func (s *Sattr) appendValue(b []byte, attr uint32) []byte {
	switch attr {
	case AttrSize:
		return xdr.AppendUint64(b, s.Size)
	case AttrACL:
		return appendACL(b, s.ACL)
	case AttrMode:
		return xdr.AppendUint32(b, s.Mode)
	case AttrOwner:
		return xdr.AppendOpaque(b, s.Owner)
	case AttrOwnerGroup:
		return xdr.AppendOpaque(b, s.OwnerGroup)
	case AttrTimeAccessSet:
		return s.TimeAccess.append(b)
	case AttrTimeModifySet:
		return s.TimeModify.append(b)
	case AttrModeSetMasked:
		b = xdr.AppendUint32(b, s.ModeSetMasked.Value)
		return xdr.AppendUint32(b, s.ModeSetMasked.Mask)
	case AttrModeUmask:
		b = xdr.AppendUint32(b, s.ModeUmask.Mode)
		return xdr.AppendUint32(b, s.ModeUmask.Umask)
	}
	return b
}

func (s *Sattr) decode(d *xdr.Decoder) {
	var raw Fattr
	raw.decode(d)
	*s = Sattr{Mask: raw.Mask, Others: raw.Others}
	vals := xdr.NewDecoder(raw.Vals)
	known := !raw.Others
	for attr, ok := s.Mask.next(0); ok; attr, ok = s.Mask.next(attr + 1) {
		if !s.decodeValue(&vals, attr) {
			known = false
			break
		}
	}
	if !known {
		vals.Rest()
	}
	if err := vals.Finish(); err != nil {
		d.Fail(err)
	}
}

// decodeValue returns false for an attribute that has no field.
func (s *Sattr) decodeValue(d *xdr.Decoder, attr uint32) bool {
	switch attr {
	case AttrSize:
		s.Size = d.Uint64()
	case AttrACL:
		s.ACL = decodeACL(d)
	case AttrMode:
		s.Mode = d.Uint32()
	case AttrOwner:
		s.Owner = d.Opaque(MaxPath)
	case AttrOwnerGroup:
		s.OwnerGroup = d.Opaque(MaxPath)
	case AttrTimeAccessSet:
		s.TimeAccess = decodeSetTime(d)
	case AttrTimeModifySet:
		s.TimeModify = decodeSetTime(d)
	case AttrModeSetMasked:
		s.ModeSetMasked = ModeMasked{Value: d.Uint32(), Mask: d.Uint32()}
	case AttrModeUmask:
		s.ModeUmask = ModeUmask{Mode: d.Uint32(), Umask: d.Uint32()}
	default:
		return false
	}
	return true
}

// SetTime is settime4. Time is for SetToClientTime.
type SetTime struct {
	How  TimeHow
	Time Time
}

func (s SetTime) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(s.How))
	if s.How == SetToClientTime {
		b = s.Time.append(b)
	}
	return b
}

func decodeSetTime(d *xdr.Decoder) (s SetTime) {
	s.How = TimeHow(d.Uint32())
	switch s.How {
	case SetToServerTime:
	case SetToClientTime:
		s.Time = decodeTime(d)
	default:
		d.Fail(xdr.ErrValue)
	}
	return s
}

// ModeMasked is mode_masked4: new values for the bits of Mask.
type ModeMasked struct {
	Value, Mask uint32
}

// ModeUmask is mode_umask4 (RFC 8275): a new file's mode, and the umask to apply if the
// directory has no default ACL.
type ModeUmask struct {
	Mode, Umask uint32
}
