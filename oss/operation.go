package oss

// operation is one kind of request, as metrics and errors name it.
type operation uint8

const (
	opGet operation = iota
	opHead
	opSymlink
	opList
	opPut
	opCopy
	opDelete
	opDeleteMany
	opCreateUpload
	opUploadPart
	opCopyPart
	opListParts
	opCompleteUpload
	opAbortUpload
	opListUploads
	numOperations
)

var operationNames = [numOperations]string{
	opGet:            "get",
	opHead:           "head",
	opSymlink:        "symlink",
	opList:           "list",
	opPut:            "put",
	opCopy:           "copy",
	opDelete:         "delete",
	opDeleteMany:     "delete_many",
	opCreateUpload:   "create_upload",
	opUploadPart:     "upload_part",
	opCopyPart:       "copy_part",
	opListParts:      "list_parts",
	opCompleteUpload: "complete_upload",
	opAbortUpload:    "abort_upload",
	opListUploads:    "list_uploads",
}

func (o operation) String() string { return operationNames[o] }

// pace of an operation: what its first byte waits for decides how long it may be
// late, and with what it is compared.
type latencyKind uint8

const (
	// kindRead is a ranged GET: the first byte comes when the data has been found.
	kindRead latencyKind = iota
	// kindMeta is a request about one name or one page of names.
	kindMeta
	// kindWrite answers after the server has stored or copied something.
	kindWrite
	numLatencyKinds
)

func (o operation) kind() latencyKind {
	switch o {
	case opGet:
		return kindRead
	case opPut, opCopy, opUploadPart, opCopyPart, opCompleteUpload:
		return kindWrite
	default:
		return kindMeta
	}
}
