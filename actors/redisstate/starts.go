package redisstate

import "errors"

// Until commits write them, a child or an emitted task is refused in the author's call, and not lost in silence.
var errStarts = errors.New("this store does not start tasks for others yet")

// CanSpawn refuses every child.
func (s *State) CanSpawn() error { return errStarts }

// CanEmit refuses every stream.
func (s *State) CanEmit(string) error { return errStarts }
