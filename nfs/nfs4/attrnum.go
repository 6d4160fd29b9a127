package nfs4

// Attributes of RFC 8881 section 5, as bits of a Bitmap. Those that no side of podnas names are left out.
const (
	AttrSupportedAttrs    = 0
	AttrType              = 1
	AttrFHExpireType      = 2
	AttrChange            = 3
	AttrSize              = 4
	AttrLinkSupport       = 5
	AttrSymlinkSupport    = 6
	AttrNamedAttr         = 7
	AttrFSID              = 8
	AttrUniqueHandles     = 9
	AttrLeaseTime         = 10
	AttrRdattrError       = 11
	AttrACL               = 12
	AttrACLSupport        = 13
	AttrArchive           = 14
	AttrCanSetTime        = 15
	AttrCaseInsensitive   = 16
	AttrCasePreserving    = 17
	AttrChownRestricted   = 18
	AttrFilehandle        = 19
	AttrFileID            = 20
	AttrFilesAvail        = 21
	AttrFilesFree         = 22
	AttrFilesTotal        = 23
	AttrFSLocations       = 24
	AttrHidden            = 25
	AttrHomogeneous       = 26
	AttrMaxFileSize       = 27
	AttrMaxLink           = 28
	AttrMaxName           = 29
	AttrMaxRead           = 30
	AttrMaxWrite          = 31
	AttrMode              = 33
	AttrNoTrunc           = 34
	AttrNumLinks          = 35
	AttrOwner             = 36
	AttrOwnerGroup        = 37
	AttrQuotaAvailHard    = 38
	AttrQuotaAvailSoft    = 39
	AttrQuotaUsed         = 40
	AttrRawDev            = 41
	AttrSpaceAvail        = 42
	AttrSpaceFree         = 43
	AttrSpaceTotal        = 44
	AttrSpaceUsed         = 45
	AttrTimeAccess        = 47
	AttrTimeAccessSet     = 48
	AttrTimeCreate        = 50
	AttrTimeDelta         = 51
	AttrTimeMetadata      = 52
	AttrTimeModify        = 53
	AttrTimeModifySet     = 54
	AttrMountedOnFileID   = 55
	AttrDACL              = 58
	AttrModeSetMasked     = 74
	AttrSuppattrExclcreat = 75

	// Those of version 4.2 (RFC 7862 section 12), of RFC 8275 and of RFC 8276.
	AttrCloneBlksize   = 77
	AttrChangeAttrType = 79
	AttrModeUmask      = 81
	AttrXattrSupport   = 82
)
