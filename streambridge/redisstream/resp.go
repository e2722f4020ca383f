package redisstream

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// A reply to XREADGROUP is taken apart from its bytes: go-redis's own types lose the order of fields and repeated names,
// and its generic ones make twenty allocations an entry where three do.

// serverError is an error reply, as go-redis would have made it of it.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError marks it as the server's word; see redis.Error.
func (e serverError) RedisError() {}

var _ redis.Error = serverError("")

var errReply = errors.New("the reply is damaged")

// replyReader goes through a reply in RESP2 or RESP3. After an error it stands still.
type replyReader struct {
	buf []byte
	at  int
	err error
}

func (r *replyReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format+": %w", append(args, errReply)...)
	}
}

// head reads a line: its kind and its number; -1 for any kind of nothing.
func (r *replyReader) head() (kind byte, n int) {
	if r.err != nil {
		return 0, -1
	}
	end := bytes.Index(r.buf[r.at:], []byte("\r\n"))
	if end < 1 {
		r.fail("it ends at byte %d", len(r.buf))
		return 0, -1
	}
	line := r.buf[r.at : r.at+end]
	r.at += end + 2
	switch line[0] {
	case '_':
		return '_', -1
	case '-':
		r.err = serverError(line[1:])
		return '-', -1
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 {
		r.fail("it has the line %.20q", line)
		return 0, -1
	}
	return line[0], n
}

// list reads the head of a list and returns its length; a map counts its pairs.
func (r *replyReader) list() (n int, pairs bool) {
	kind, n := r.head()
	switch kind {
	case '*', '%', '_', 0, '-':
		return n, kind == '%'
	case '$':
		if n < 0 {
			return n, false
		}
	}
	r.fail("it has a %q where a list belongs", kind)
	return -1, false
}

// bulk reads a string and returns where it stands.
func (r *replyReader) bulk() (from, to int) {
	kind, n := r.head()
	if r.err != nil {
		return 0, 0
	}
	if kind != '$' || n < 0 || r.at+n+2 > len(r.buf) {
		r.fail("it has a %q of %d where a string belongs", kind, n)
		return 0, 0
	}
	from = r.at
	r.at += n + 2
	return from, from + n
}

// readReply takes a reply to XREADGROUP apart. Nothing to read is no entries. RESP3 says {key: entries}, RESP2
// [[key, entries]].
func readReply(buf []byte) ([]streambridge.Entry, error) {
	r := &replyReader{buf: buf}
	var out []streambridge.Entry
	var spots []int
	streams, pairs := r.list()
	for range streams {
		if r.err != nil {
			break
		}
		if !pairs {
			r.list()
		}
		from, to := r.bulk()
		stream := string(r.buf[from:to])
		entries, _ := r.list()
		if r.err == nil && entries > 0 && entries <= len(buf) {
			out = append(make([]streambridge.Entry, 0, len(out)+entries), out...)
		}
		for range entries {
			r.list()
			e := streambridge.Entry{Deliveries: 1}
			from, to := r.bulk()
			e.Stream, e.ID = stream, string(r.buf[from:to])
			spots = spots[:0]
			fields, _ := r.list()
			for range fields {
				from, to := r.bulk()
				if r.err != nil {
					break
				}
				spots = append(spots, from, to)
			}
			if r.err != nil {
				return nil, r.err
			}
			e.Fields = fieldsOf(r.buf, spots)
			out = append(out, e)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}

// fieldsOf copies an entry's names and values out of the reply in one piece: an entry that is kept for hours must not
// keep the whole batch.
func fieldsOf(buf []byte, spots []int) []messages.Pair {
	if len(spots) < 4 {
		return nil
	}
	first := spots[0]
	all := string(buf[first:spots[len(spots)-1]])
	out := make([]messages.Pair, len(spots)/4)
	for i := range out {
		s := spots[4*i:]
		out[i] = messages.Pair{Name: all[s[0]-first : s[1]-first], Value: all[s[2]-first : s[3]-first]}
	}
	return out
}

// inboxFirst turns the streams of a reply around where the public one came first, so that what is due does not wait
// behind what is new.
func inboxFirst(entries []streambridge.Entry, inbox string) []streambridge.Entry {
	for i := range entries {
		if entries[i].Stream != inbox {
			continue
		}
		if i == 0 {
			return entries
		}
		return append(append(make([]streambridge.Entry, 0, len(entries)), entries[i:]...), entries[:i]...)
	}
	return entries
}

// hasPrefix is redis.HasErrorPrefix for errors that may be wrapped.
func hasPrefix(err error, prefix string) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.HasPrefix(e.Error(), prefix)
}
