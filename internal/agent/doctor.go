package agent

// The probes an agent makes before it starts, for who wants to know without
// starting one. They change nothing that stays.

// CheckCapabilities says which capability the process lacks ([ErrPrivilege]).
func CheckCapabilities() error { return checkCapabilities() }

// TryCPUs binds a thread, which ends then, to each CPU in turn.
func TryCPUs(cpus []int) error { return tryCPUs(cpus) }

// TryRunDir says why an agent's sockets cannot be made in a directory that is there.
func TryRunDir(dir string) error { return tryRunDir(&Config{RunDir: dir}) }
