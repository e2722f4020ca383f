package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxRESP bounds one string or one count, as Redis itself does (proto-max-bulk-len).
const maxRESP = 512 << 20

var errNotRESP = errors.New("not RESP")

// appendValue reads one RESP2 or RESP3 value and appends its bytes, unchanged, to buf. kind is the value's type
// byte; an attribute ('|') is read together with the value that it describes.
func appendValue(buf []byte, r *bufio.Reader) (all []byte, kind byte, err error) {
	for {
		var children int
		if buf, kind, children, err = appendHead(buf, r); err != nil {
			return buf, kind, err
		}
		for range children {
			if buf, _, err = appendValue(buf, r); err != nil {
				return buf, kind, err
			}
		}
		if kind != '|' {
			return buf, kind, nil
		}
	}
}

// appendHead reads a value up to its children and says how many follow.
func appendHead(buf []byte, r *bufio.Reader) (all []byte, kind byte, children int, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return buf, 0, 0, err
	}
	buf = append(buf, line...)
	kind = line[0]
	switch kind {
	case '+', '-', ':', ',', '#', '_', '(':
		return buf, kind, 0, nil
	case '$', '!', '=':
		n, err := count(line)
		if err != nil || n < 0 {
			return buf, kind, 0, err
		}
		at := len(buf)
		buf = append(buf, make([]byte, n+len("\r\n"))...)
		_, err = io.ReadFull(r, buf[at:])
		return buf, kind, 0, err
	case '*', '~', '>':
		children, err = count(line)
	case '%', '|':
		children, err = count(line)
		children *= 2
	default:
		err = fmt.Errorf("%w: %q", errNotRESP, line)
	}
	return buf, kind, max(children, 0), err
}

func count(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || n > maxRESP {
		return 0, fmt.Errorf("%w: %q", errNotRESP, line)
	}
	return n, nil
}

// words are the arguments of a command: an array of bulk strings.
func words(command []byte) ([]string, error) {
	r := bufio.NewReader(bytes.NewReader(command))
	head, err := r.ReadBytes('\n')
	if err != nil || head[0] != '*' {
		return nil, fmt.Errorf("%w: a command is an array", errNotRESP)
	}
	n, err := count(head)
	if err != nil {
		return nil, err
	}
	var cmd []string
	for range n {
		b, kind, err := appendValue(nil, r)
		if err != nil || kind != '$' {
			return nil, fmt.Errorf("%w: a command's words are bulk strings", errNotRESP)
		}
		_, word, _ := bytes.Cut(b, []byte("\r\n"))
		cmd = append(cmd, string(bytes.TrimSuffix(word, []byte("\r\n"))))
	}
	return cmd, nil
}
