package streamtest

import (
	"testing"
)

var tests = []struct {
	name string
	run  func(w *world)
}{}

type world struct {
	*testing.T
	Fixture
}
