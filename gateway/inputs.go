package gateway

import "picot.dev/picot/gateway/static"

// Inputs is what Kubernetes says, whole. It must not be changed after SetInputs.
type Inputs struct {
	// Synced: nodes and uplinks are complete. Until then no NB row is added, changed or removed for
	// their sake.
	Synced  bool
	Nodes   []static.Node
	Uplinks []static.Uplink
	// Deleting names the networks whose deletion has begun: their rows go before their routers do.
	Deleting []string
}
