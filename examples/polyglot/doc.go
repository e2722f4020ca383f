// Package polyglot holds a producer that is not Go: see README.md beside it.
package polyglot
