-- Make the group again where it has vanished.
-- KEYS[1] public stream  KEYS[2] inbox
-- ARGV: P, group, incarnation
-- Returns the group's epoch: another one than before when something was lost.
-- Atomic because every reader of every node finds the loss at the same moment and the group must be made once, at one
-- place. Repeated, it changes nothing.
return ensure(ARGV[1], KEYS[1], ARGV[2], ARGV[3])
