package redisreconcile

// Tag is the hash tag of a partition.
func (s *Store) Tag(part int) string { return s.parts.Tag(part) }
