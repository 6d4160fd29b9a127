package disk

// Linux's names and sizes of extended attributes, xattr(7).
const (
	// XattrUser is before the names of attributes that users may give to files.
	XattrUser = "user."
	// XattrACL is before those of POSIX ACLs, acl(5).
	XattrACL = "system.posix_acl_"
	// XattrListMax is the most that the names of a file's attributes take, each with a zero byte.
	XattrListMax = 64 << 10
	// XattrMax is the most that a value takes.
	XattrMax = 64 << 10
)
