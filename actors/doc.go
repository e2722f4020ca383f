// Package actors is what an author of agents imports: handlers and their steps, and the client that submits tasks and
// reads their results. It links neither an actor library nor a Redis client; package supervision runs the agents.
package actors
