// Package messages is the wire of Weir: what crosses a package or a process, and the names under which it is kept.
//
// It is a leaf and it is pure: no I/O, no goroutine, no clock. It holds
//
//   - the protobuf messages that actors exchange (proto/weir/v1, generated beside this file): [Task], [Assign], [Done],
//     [Cancel], [Finished], [DeadLetter] and the enums [State], [Outcome], [Charge], [Reason], [Verdict];
//   - the codec between the flat fields of a stream entry and a [Task]: [Decode] and [Encode]. Any client may produce
//     entries with plain XADD, of work and of messages to tasks, and [FieldNames] renames the fields for producers written for another consumer;
//   - identity and keys: [Names], [Keys], [Escape], [EffectKey], [WorkHash];
//   - the layout of the keys in Redis (layout.go) and the part of it that scripts share (task.lua, wait.lua);
//   - the form of a step's checkpoint, of an open wait and of how it ended: [EncodeStep], [EncodeWait], [EncodeWaited].
package messages

//go:generate make -C .. generate
