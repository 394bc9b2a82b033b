package topology

import "strings"

// The names ovn-kubernetes gives the pieces of a gateway (go-controller/pkg/types and
// pkg/util/multi_network.go). The network of "" is the cluster default network.

var networkReplacer = strings.NewReplacer("-", ".", "/", ".")

// prefix is what a network puts before the node's name: nothing for the default network.
func prefix(network string) string {
	if network == "" {
		return ""
	}
	return networkReplacer.Replace(network) + "_"
}

// GatewayRouter is the Logical_Router of a network on a node.
func GatewayRouter(network, node string) string { return "GR_" + prefix(network) + node }

// RouterPort is that router's port towards the physical network: the logical_port of its bindings.
func RouterPort(network, node string) string { return routerPortPrefix + GatewayRouter(network, node) }

// LocalnetPort is the localnet switch port that ties a gateway's external switch to a bridge.
func LocalnetPort(bridge, network, node string) string { return bridge + "_" + prefix(network) + node }

// PatchPort is the bridge's end of the patch that ovn-controller makes for a localnet port.
func PatchPort(localnet string) string { return "patch-" + localnet + "-to-br-int" }

const (
	routerPortPrefix = "rtoe-"
	secondarySuffix  = "_ovn_localnet_port"
)

// IsRouterPort tells whether a name has the shape of a gateway router port of a node. Another
// node's port can have it too ("rtoe-GR_a_b" for network a on node b, or on node a_b), so it says
// what may be ours, never what is.
func IsRouterPort(port, node string) bool {
	rest, ok := strings.CutPrefix(port, routerPortPrefix+"GR_")
	return ok && (rest == node || strings.HasSuffix(rest, "_"+node))
}

// isGatewayLocalnet tells the same of a localnet port on a bridge.
func isGatewayLocalnet(localnet, bridge, node string) bool {
	rest, ok := strings.CutPrefix(localnet, bridge+"_")
	return ok && (rest == node || strings.HasSuffix(rest, "_"+node))
}

// isSecondaryLocalnet tells whether a localnet port belongs to a secondary localnet network.
func isSecondaryLocalnet(localnet string) bool { return strings.HasSuffix(localnet, secondarySuffix) }
