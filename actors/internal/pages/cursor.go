// Package pages writes and reads the cursors of lists: opaque to callers, safe in a URL and on a command line.
package pages

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Cursor packs the parts of a place in a list. No part but the last may hold a NUL byte.
func Cursor(parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\x00")))
}

// Parts undoes Cursor for n parts; "" gives nil: the beginning.
func Parts(cursor string, n int) ([]string, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(b), "\x00", n)
	if err != nil || len(parts) != n {
		return nil, fmt.Errorf("%.40q is not where a page of this list ended", cursor)
	}
	return parts, nil
}

// Most bounds a page.
const Most = 1000

// Limit is how many items a page has at most: 100 where nobody says, and never more than Most.
func Limit(n int) int {
	if n <= 0 {
		return 100
	}
	return min(n, Most)
}
