//go:build !unix

package redistest

import "syscall"

const diesWithParent = false

// There is no SIGSTOP here: sending these fails and says so.
const (
	sigStop = syscall.Signal(-1)
	sigCont = syscall.Signal(-1)
)

func childAttr() *syscall.SysProcAttr { return nil }
