package redistest

// DiesWithParent is diesWithParent, for the tests.
const DiesWithParent = diesWithParent

// AppendValue is appendValue, for the tests.
var AppendValue = appendValue

// Words is words, for the tests.
var Words = words
