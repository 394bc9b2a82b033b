// Package status is what an agent tells about itself: the JSON of its control
// socket, which "picot show", tests and tools read. Fields are only ever added.
// Plain data; the package does nothing.
package status

// Status is what "picot show" and the health endpoints print. Its JSON form is
// stable: fields are only added.
type Status struct {
	Node     string   `json:"node"`
	Locator  string   `json:"locator,omitempty"`
	Ready    bool     `json:"ready"`
	Waiting  []string `json:"waiting,omitempty"` // what keeps it, or the gateway ("gateway: ..."), from being ready
	Problems []string `json:"problems,omitempty"`
	Snapshot uint64   `json:"snapshot"`
	Applies  uint64   `json:"applies"`
	// Repairs counts what was mended that somebody took away: pins, slots, programs.
	Repairs   uint64   `json:"repairs"`
	Ports     []Port   `json:"ports"`
	Uplinks   []Uplink `json:"uplinks"`
	Nodes     []Node   `json:"nodes"`
	Workers   []Worker `json:"workers"`
	Frames    Frames   `json:"frames"`
	FDBSize   int      `json:"fdbSize"`
	Neighbors int      `json:"neighbors"`
	// API is absent where the desired state comes from manifests.
	API *API `json:"api,omitempty"`
	// Learning is absent where nothing is learned: bindings come from manifests.
	Learning *Learning `json:"learning,omitempty"`
	// GatewayReady is the gateway's own readiness; absent where it is off. Ready is the data path's.
	GatewayReady *bool `json:"gatewayReady,omitempty"`
}

// Traffic is the counters of a port.
type Traffic struct {
	RX         uint64            `json:"rx"`
	RXBytes    uint64            `json:"rxBytes"`
	TX         uint64            `json:"tx"`
	TXBytes    uint64            `json:"txBytes"`
	TXBusy     uint64            `json:"txBusy"`
	Local      uint64            `json:"local"`
	Remote     uint64            `json:"remote"`
	Answered   uint64            `json:"answered"`
	Dropped    uint64            `json:"dropped"`
	ICMPErrors uint64            `json:"icmpErrors"`
	Bogus      uint64            `json:"bogus"`
	Drops      map[string]uint64 `json:"drops,omitempty"` // by reason
	XDP        *XDP              `json:"xdp,omitempty"`
	Socket     SocketStats       `json:"socket"`
}

// XDP is what the XDP program counted.
type XDP struct {
	Redirected   uint64 `json:"redirected"`
	DroppedEmpty uint64 `json:"droppedEmpty"`
	Passed       uint64 `json:"passed"`
	Errors       uint64 `json:"errors"`
	Tags         uint64 `json:"tagsReinserted"`
}

// SocketStats is what the kernel counted at the sockets (XDP_STATISTICS).
type SocketStats struct {
	RXDropped uint64 `json:"rxDropped"`
	RingFull  uint64 `json:"ringFull"`
	FillEmpty uint64 `json:"fillEmpty"`
	RXInvalid uint64 `json:"rxInvalid"`
	TXInvalid uint64 `json:"txInvalid"`
}

// Port is one workload port.
type Port struct {
	Port     int    `json:"port"`
	Device   string `json:"device"`
	Endpoint string `json:"endpoint"`
	Network  string `json:"network"`
	MAC      string `json:"mac"`
	Up       bool   `json:"up"`
	MTU      int    `json:"mtu"`
	Worker   int    `json:"worker"`
	Mode     string `json:"mode"`
	Error    string `json:"error,omitempty"`
	Traffic  `json:"traffic"`
	Sockets  []Socket `json:"sockets,omitempty"`
}

// Uplink is one uplink.
type Uplink struct {
	Device  string `json:"device"`
	Up      bool   `json:"up"`
	MTU     int    `json:"mtu"`
	Queues  int    `json:"queues"`
	Mode    string `json:"mode,omitempty"`
	Error   string `json:"error,omitempty"`
	Traffic `json:"traffic"`
	Sockets []Socket `json:"sockets,omitempty"`
}

// Node is another node.
type Node struct {
	Node     string   `json:"node"`
	Locator  string   `json:"locator"`
	Alive    bool     `json:"alive"`
	NextHops []string `json:"nextHops"` // device and MAC
	PathMTU  int      `json:"pathMTU,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// Worker is one worker.
type Worker struct {
	Worker  int    `json:"worker"`
	Rounds  uint64 `json:"rounds"`
	Sockets int    `json:"sockets"`
	// HandedOver is the frames it gave to other workers.
	HandedOver uint64 `json:"handedOver"`
}

// Frames is where the pool's frames are.
type Frames struct {
	Total   int `json:"total"`
	Free    int `json:"free"`
	Fill    int `json:"fill"`
	Batch   int `json:"batch"`
	TX      int `json:"tx"`
	Handoff int `json:"handoff"`
}

// FDBEntry is one FDB entry as the data path has it.
type FDBEntry struct {
	Network string `json:"network"`
	MAC     string `json:"mac"`
	Kind    string `json:"kind"`
	Where   string `json:"where"` // port's device or node
	Segment uint32 `json:"segment"`
	Static  bool   `json:"static"`
}

// Neighbor is one neighbour as the data path has it.
type Neighbor struct {
	Network string `json:"network"`
	IP      string `json:"ip"`
	MAC     string `json:"mac"`
	Router  bool   `json:"router"`
	Static  bool   `json:"static"`
	Gateway bool   `json:"gateway"`
}

// Socket is one AF_XDP socket.
type Socket struct {
	Queue       int    `json:"queue"`
	Worker      int    `json:"worker"`
	State       string `json:"state"`
	ZeroCopy    bool   `json:"zeroCopy"`
	Received    uint64 `json:"received"`
	Sent        uint64 `json:"sent"`
	Filled      int    `json:"filled"`
	Outstanding int    `json:"outstanding"`
}
