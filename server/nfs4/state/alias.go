package state

// A client may have a file open by another FileID than that of its FileKey: the one by which an earlier
// process knew the file. As long as it has, it must be given no other. Linux takes two handles for two
// inodes, each with pages of its own, so two programs on a node would not see what each other writes.
// And both would have the same open here, as they have one open owner: the CLOSE of one would release
// the locks of the other.

// alias is such a FileID.
type alias struct {
	id    string
	opens int // of the client and the file, since it has the alias
}

type aliasKey struct {
	client *Client
	file   *file
}

// addAlias gives an open the alias that the client's other opens of the file have, or else id, if there
// is one.
func (s *State) addAlias(o *open, id []byte) {
	key := aliasKey{o.client, o.file}
	a := s.aliases[key]
	if a == nil {
		if len(id) == 0 {
			return
		}
		a = &alias{id: string(id)}
		s.aliases[key] = a
		s.aliased.Add(1)
	}
	a.opens++
	o.alias = a
}

func (s *State) dropAlias(o *open) {
	if o.alias == nil {
		return
	}
	if o.alias.opens--; o.alias.opens == 0 {
		delete(s.aliases, aliasKey{o.client, o.file})
		s.aliased.Add(-1)
	}
}

// aliasID is empty if the open has no alias.
func (o *open) aliasID() []byte {
	if o.alias == nil {
		return nil
	}
	return []byte(o.alias.id)
}

// HasAliases reports whether a client has a file open by another FileID than its own.
func (s *State) HasAliases() bool { return s.aliased.Load() > 0 }

// Alias returns that FileID for a client and a file, empty if there is none.
func (s *State) Alias(c *Client, f FileKey) string {
	s.mu.Lock()
	defer s.unlock()
	if a := s.aliases[aliasKey{c, s.files[f]}]; a != nil {
		return a.id
	}
	return ""
}
