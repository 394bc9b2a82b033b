package e2ek8s

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// picot is the binary under test, built once.
var picot string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "picot-e2ek8s-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	picot = filepath.Join(dir, "picot")
	if out, err := exec.Command("go", "build", "-o", picot, "../../cmd/picot").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building picot: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// cluster is an API server and two nodes whose agents follow it, each with the
// token of its own node.
type cluster struct {
	*lab.Lab
	t      *testing.T
	server *apitest.Server
	way    ways           // to the server, for all but api
	api    *client.Client // the administrator's
	audit  string         // the server's log of writes to picot's kinds
	n1, n2 *lab.Node
}

// ways are ways to the server that can be cut: the lab's own, then each node's.
type ways []*apitest.Proxy

func (w ways) Cut() {
	for _, p := range w {
		p.Cut()
	}
}

func (w ways) Restore() {
	for _, p := range w {
		p.Restore()
	}
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: picot.dev}]
- level: None
`

// newCluster makes the nodes; their agents are not started.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, apitest.Options{})
}

// newClusterWith is newCluster with a server of a kind, and arguments of the
// agents.
func newClusterWith(t *testing.T, o apitest.Options, args ...string) *cluster {
	t.Helper()
	testnet.RequireRoot(t)
	testnet.RequireTool(t, "ping")
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	c := &cluster{t: t, audit: filepath.Join(dir, "audit.log")}
	o.Args = append(o.Args, "--audit-policy-file="+policy, "--audit-log-path="+c.audit)
	c.server = apitest.Start(t, o)
	c.api = c.server.Client(t)
	c.way = ways{c.server.Proxy(t)}
	admin := filepath.Join(dir, "admin.kubeconfig")
	writeKubeconfig(t, admin, c.way[0].Config(c.server.Config()))
	var err error
	c.Lab, err = lab.New(context.Background(), lab.Options{Picot: picot, Kubeconfig: admin})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.Nodes() {
				t.Logf("log of %s:\n%s", n.Name, lastLines(n.Log(), 80))
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	for _, n := range []**lab.Node{&c.n1, &c.n2} {
		name := fmt.Sprintf("node%d", len(c.Nodes())+1)
		file := filepath.Join(dir, name+".kubeconfig")
		own := c.server.Proxy(t)
		c.way = append(c.way, own)
		writeKubeconfig(t, file, own.Config(c.server.AgentConfig(t, name)))
		*n, err = c.AddNode(lab.NodeOptions{Name: name, Kubeconfig: file, Args: args})
		must(t, err)
	}
	return c
}

func lastLines(s string, n int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// writeKubeconfig writes a file that says what config does.
func writeKubeconfig(t *testing.T, file string, config *rest.Config) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["lab"] = &clientcmdapi.Cluster{Server: config.Host,
		CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData}
	k.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: config.BearerToken,
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	k.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "agent"}
	k.CurrentContext = "lab"
	must(t, clientcmd.WriteToFile(*k, file))
}

// start starts both agents and waits until each has that many ports.
func (c *cluster) start(ports int) {
	c.t.Helper()
	for _, n := range c.Nodes() {
		must(c.t, n.Start(within(c.t, 20*time.Second)))
	}
	for _, n := range c.Nodes() {
		must(c.t, n.WaitReady(within(c.t, time.Minute), ports))
	}
}

// addRed adds the network all tests use.
func (c *cluster) addRed() {
	c.t.Helper()
	must(c.t, c.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, ""))
}

// addPod adds a pod to red whose name is one of a to f, from which its
// addresses follow.
func (c *cluster) addPod(n *lab.Node, name string, change ...func(*lab.PodOptions)) *lab.Pod {
	c.t.Helper()
	o := lab.PodOptions{
		Name: name, Node: n, Network: "red", Segment: 7, MAC: "02:00:00:00:00:0" + name,
		Addresses: []string{fmt.Sprintf("10.0.0.%d", 10+name[0]-'a'), "fd00:10::" + name},
	}
	for _, f := range change {
		f(&o)
	}
	p, err := c.AddPod(o)
	must(c.t, err)
	return p
}

// fourPods adds red with pods a and b on node1, c and d on node2, and starts.
func (c *cluster) fourPods() (pods [4]*lab.Pod) {
	c.t.Helper()
	c.addRed()
	for i, n := range []*lab.Node{c.n1, c.n1, c.n2, c.n2} {
		pods[i] = c.addPod(n, string(rune('a'+i)))
	}
	c.start(2)
	return pods
}

// reaches waits until from reaches to over IPv4 and IPv6.
func (c *cluster) reaches(from, to *lab.Pod) {
	c.t.Helper()
	for _, a := range to.Addresses {
		c.eventually(20*time.Second, fmt.Sprintf("%s reaches %s at %s", from.Name, to.Name, a), func() error {
			_, err := from.Run(within(c.t, 10*time.Second), "ping", "-c", "1", "-W", "2", a.String())
			return err
		})
	}
}

// eventually polls until f is satisfied.
func (c *cluster) eventually(limit time.Duration, what string, f func() error) {
	c.t.Helper()
	apitest.EventuallyWithin(c.t, limit, what, f)
}

// flood is a ping that goes on until it is ended.
type flood struct {
	cmd *exec.Cmd
	out *strings.Builder
}

func (c *cluster) flood(from *lab.Pod, to string) flood {
	c.t.Helper()
	f := flood{from.Command(within(c.t, 10*time.Minute), "ping", "-i", "0.01", "-W", "3", "-q", to), &strings.Builder{}}
	f.cmd.Stdout, f.cmd.Stderr = f.out, f.out
	must(c.t, f.cmd.Start())
	return f
}

// floods are floods to each pod in both families.
func (c *cluster) floods(from *lab.Pod, to ...*lab.Pod) (all []flood) {
	c.t.Helper()
	for _, p := range to {
		for _, a := range p.Addresses {
			all = append(all, c.flood(from, a.String()))
		}
	}
	return all
}

// singles is how many pings of a flood may be lost: one every 10 ms, so forwarding
// that stops for 40 ms loses more. A starved machine drops single frames in the
// kernel's rings, where they are counted.
const singles = 3

// end stops the flood: forwarding never stopped, and nothing came twice.
func (f flood) end(t *testing.T) {
	t.Helper()
	must(t, f.cmd.Process.Signal(os.Interrupt))
	err := f.cmd.Wait()
	out := f.out.String()
	lines := strings.Split(out, "\n")
	i := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "transmitted") })
	sent, received := 0, 0
	if i >= 0 {
		t.Log(lines[i])
		_, _ = fmt.Sscanf(lines[i], "%d packets transmitted, %d received", &sent, &received)
	}
	if err != nil || sent == 0 || sent-received > singles || strings.Contains(out, "duplicates") {
		t.Errorf("%s: %v\n%s", strings.Join(f.cmd.Args, " "), err, out)
	}
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within is a context for one step of a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
