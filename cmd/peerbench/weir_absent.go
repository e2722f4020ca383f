//go:build !weir

package main

// weirRows is empty until Weir's runtime exists: weir.go is built with the tag weir.
var weirRows []row
