// Package doctor looks at everything an agent depends on and says what it found,
// whether that will do, and how to mend it. It is what "picot doctor" prints.
//
// There are two halves. Reading ([Read]) asks the kernel, the manifests or the API
// server, and the running agent, and fills [Facts]; where the agent has a probe of
// its own, that very probe is used. Judging ([Judge]) is pure: facts in, checks out.
//
// Nothing on the node changes. What has to be tried is tried in a network and a
// mount namespace of a thread's own, which end with that thread: the interfaces,
// programs, pins and routes in them are nobody else's. Outside of these only
// questions are asked, a file is made and removed in the run directory, a socket
// without frames is bound to a queue that no agent uses, and, if wanted, echo
// requests are sent.
//
// [Read] works in the calling thread's network namespace: lock the goroutine to it
// if that is not the process's. Both may be called from any goroutine.
package doctor
