package status

// API is this node's writing to the Kubernetes API.
type API struct {
	// Queued is how many objects wait for a write, its retry, or its result to
	// be seen, by class: static, learned, refresh.
	Queued map[string]int `json:"queued"`
	Writes []APIWrites    `json:"writes,omitempty"`
}

// APIWrites counts the attempts that ended alike.
type APIWrites struct {
	Resource string `json:"resource"`
	Verb     string `json:"verb"`
	// Result is ok, conflict (the stored state was not the one decided on),
	// transport, or the API's reason.
	Result string `json:"result"`
	Count  uint64 `json:"count"`
}
