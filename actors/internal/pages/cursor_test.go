package pages_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors/internal/pages"
)

func TestCursor(t *testing.T) {
	for _, parts := range [][]string{{"1", "a:b", "c\x00d"}, {"", "", ""}, {"-", "/", "ü"}} {
		got, err := pages.Parts(pages.Cursor(parts...), 3)
		require.NoError(t, err)
		require.Equal(t, parts, got)
	}
	got, err := pages.Parts("", 3)
	require.NoError(t, err)
	require.Nil(t, got)
	for _, bad := range []string{"%", "AA", pages.Cursor("a", "b")} {
		_, err := pages.Parts(bad, 3)
		require.Error(t, err, bad)
	}
	require.Equal(t, []int{100, 100, 7, 1000}, []int{pages.Limit(0), pages.Limit(-1), pages.Limit(7), pages.Limit(5000)})
}
