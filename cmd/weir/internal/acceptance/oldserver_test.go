package acceptance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// startOldServer answers what a Redis 6.0 says about itself, and nothing else: no such server can be had here.
func startOldServer(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serveOld(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func serveOld(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		var n int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
			return
		}
		words := make([]string, n)
		for i := range words {
			var size int
			if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
				return
			}
			b := make([]byte, size+2)
			if _, err := io.ReadFull(in, b); err != nil {
				return
			}
			words[i] = string(b[:size])
		}
		reply := "-ERR unknown command\r\n"
		switch strings.ToUpper(words[0]) {
		case "PING":
			reply = "+PONG\r\n"
		case "CLIENT", "SELECT":
			reply = "+OK\r\n"
		case "INFO":
			text := "# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n"
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}
