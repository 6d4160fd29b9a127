package nfsv41

import "github.com/podnas/podnas/nfs/nfs4"

// PanicIn has an operation end in a panic.
func (s *Server) PanicIn(op nfs4.OpNum) {
	s.operations[op].do = func(*compound) (result, error) { panic(op) }
}
