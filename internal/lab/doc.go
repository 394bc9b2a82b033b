// Package lab builds small picot clusters on one machine, for "picot demo" and
// for end-to-end tests: nodes and pods are network namespaces, agents are real
// processes of the picot binary, and what to carry comes from manifest files.
//
//	pod netns ── veth ── node netns ── up0 veth ── underlay netns ── up0 veth ── node netns ── veth ── pod netns
//	 eth0        (host end down:                    router with static routes,
//	              the agent brings it up)           or one bridge
//
// The lab only plays what is around picot: kubelet and CNI (pods, manifests) and
// FRR (static routes to the locators). Everything is real beyond that.
//
// Every namespace, the bpffs mount and the directory carry a tag with this
// process's id, so that labs side by side never meet, and [New] sweeps what runs
// that are dead left behind. [Lab.Close] removes everything; it may be called at
// any time, also after a failed construction, and more than once.
//
// A Lab is built (AddX, DeleteX, Close) from one goroutine. Commands, statuses
// and manifests may be used from any.
package lab
