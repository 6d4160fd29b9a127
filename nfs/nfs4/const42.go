package nfs4

// MaxSources is how many servers a COPY may name as its source.
const MaxSources = 16

// NetlocType is netloc_type4 (RFC 7862).
type NetlocType uint32

// Values of NetlocType.
const (
	NetlocName NetlocType = 1
	NetlocURL  NetlocType = 2
	NetlocAddr NetlocType = 3
)

// DataContent is data_content4 (RFC 7862).
type DataContent uint32

// Values of DataContent.
const (
	ContentData DataContent = 0
	ContentHole DataContent = 1
)

// Hints of IO_ADVISE (RFC 7862 section 15.5), as bits of a Bitmap.
const (
	AdviseNormal                = 0
	AdviseSequential            = 1
	AdviseSequentialBackwards   = 2
	AdviseRandom                = 3
	AdviseWillneed              = 4
	AdviseWillneedOpportunistic = 5
	AdviseDontneed              = 6
	AdviseNoreuse               = 7
	AdviseRead                  = 8
	AdviseWrite                 = 9
	AdviseInitProximity         = 10
)

// SetxattrOption is setxattr_option4 (RFC 8276).
type SetxattrOption uint32

// Values of SetxattrOption.
const (
	XattrEither  SetxattrOption = 0
	XattrCreate  SetxattrOption = 1
	XattrReplace SetxattrOption = 2
)
