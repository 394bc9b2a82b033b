package demo

import (
	"context"
	"fmt"

	"picot.dev/picot/internal/lab"
)

// Cluster is the demo's two nodes and eight pods.
type Cluster struct {
	Lab   *lab.Lab
	Nodes []*lab.Node
	// Red and Blue have the same MACs and addresses, pod by pod: two on the first
	// node, two on the second.
	Red, Blue []*lab.Pod
	// OnlyBlue is an address that the first blue pod has and no red one.
	OnlyBlue string
}

const portsPerNode = 4

var networks = []struct {
	name string
	id   int
}{{"red", 100}, {"blue", 200}}

// Build makes the cluster in an empty lab. No agent runs yet.
func Build(l *lab.Lab) (*Cluster, error) {
	c := &Cluster{Lab: l, OnlyBlue: "10.0.0.99"}
	for range 2 {
		n, err := l.AddNode(lab.NodeOptions{})
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, net := range networks {
		if err := l.AddNetwork(net.name, net.id, []string{"10.0.0.0/24", "fd00:10::/64"}, "mtu: 1446"); err != nil {
			return nil, err
		}
		for i := range 4 {
			node, letter := i/2+1, string(rune('a'+i%2))
			o := lab.PodOptions{
				Name: fmt.Sprintf("%s-%d%s", net.name, node, letter), Node: c.Nodes[node-1], Network: net.name,
				MAC:       fmt.Sprintf("02:00:00:00:0%d:0%s", node, letter),
				Addresses: []string{fmt.Sprintf("10.0.0.%d%d", node, i%2+1), fmt.Sprintf("fd00:10::%d%d", node, i%2+1)},
				Segment:   7,
			}
			if net.name == "blue" && i == 0 {
				o.Addresses = append(o.Addresses, c.OnlyBlue)
			}
			p, err := l.AddPod(o)
			if err != nil {
				return nil, err
			}
			if net.name == "blue" {
				c.Blue = append(c.Blue, p)
			} else {
				c.Red = append(c.Red, p)
			}
		}
	}
	return c, nil
}

// Start starts the agents.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}
