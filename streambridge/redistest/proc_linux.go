package redistest

import "syscall"

// diesWithParent says that a server ends when this process does, however it ends.
const diesWithParent = true

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// childAttr gives the server a process group of its own (Ctrl-C at a terminal must not take Redis away from a
// process that still drains) and has the kernel kill it when this process dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
