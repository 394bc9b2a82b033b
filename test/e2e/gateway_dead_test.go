package e2e

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
)

// Databases of the gateway that are not there, or that take a connection and say
// nothing, never stop L2: it starts, carries, changes and starts again.
func TestDeadDatabasesNeverStopL2(t *testing.T) {
	for name, address := range map[string]func(t *testing.T, dir, db string) string{
		"not there": func(_ *testing.T, dir, db string) string { return filepath.Join(dir, db) },
		"silent": func(t *testing.T, dir, db string) string {
			path := filepath.Join(dir, db)
			l, err := net.Listen("unix", path)
			must(t, err)
			t.Cleanup(func() { must(t, l.Close()) })
			return path
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"--gateway", "--disable-udn-arp-ndp-flood", "--enable-network-segmentation", "--gateway-ovs-run-dir", dir}
			for _, db := range []string{"ovs", "nb", "sb"} {
				args = append(args, "--gateway-"+db+"-db", "unix:"+address(t, dir, db))
			}
			s := newSite(t, lab.NodeOptions{Args: args})
			s.reachAll()
			s.at(s.n1, "the gateway is in trouble, L2 is not", func(st status.Status) error {
				if !st.Ready || st.GatewayReady == nil || *st.GatewayReady {
					return fmt.Errorf("ready %t, gateway %v", st.Ready, st.GatewayReady)
				}
				if !strings.Contains(strings.Join(append(st.Problems, st.Waiting...), "\n"), "gateway") {
					return errors.New("the gateway is not named")
				}
				return nil
			})
			s.must(s.DeletePod(s.ctx, s.a2))
			s.a2 = s.addPod(s.n1, 4)
			s.ready()
			s.reachAll()
			s.must(s.n1.Kill())
			s.must(s.n1.Start(s.ctx))
			s.ready()
			s.reachAll()
		})
	}
}
