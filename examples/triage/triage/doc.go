// Package triage answers public bug reports: an agent with three steps that are worth keeping.
//
//	intent   a chat model says what went wrong for the user (official OpenAI client)
//	similar  a full-text index finds reports that say the same in other words (bleve, in memory)
//	reply    the chat model drafts an answer that cites them, streamed token by token
//
// A crash after "intent" does not pay for "intent" again: what a step gave is kept, and the next activation goes on
// from there. The reports are embedded; without a provider, package chatserver speaks its protocol.
package triage
