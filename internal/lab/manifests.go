package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Manifests is the directory all agents of the lab read.
func (l *Lab) Manifests() string { return filepath.Join(l.dir, "manifests") }

// WriteManifest writes NAME.yaml, in one step: no agent sees half of it. With an
// API server it creates the object, or changes its spec.
func (l *Lab) WriteManifest(name, yaml string) error {
	if l.objects != nil {
		return l.objects.write(l.life, name, yaml)
	}
	path := filepath.Join(l.Manifests(), name+".yaml")
	// Not in the watched directory: it is no manifest yet.
	part := filepath.Join(l.dir, nodePrefix+name+".part")
	if err := os.WriteFile(part, []byte(yaml), 0o644); err != nil {
		return fmt.Errorf("manifest %s: %w", name, err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("manifest %s: %w", name, err)
	}
	return nil
}

// RemoveManifest removes NAME.yaml, or the object, if it is there.
func (l *Lab) RemoveManifest(name string) error {
	if l.objects != nil {
		return l.objects.remove(l.life, name)
	}
	err := os.Remove(filepath.Join(l.Manifests(), name+".yaml"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// AddNetwork writes the manifest network-NAME. extra is YAML of more fields of
// its spec, such as "mtu: 1446\nportSecurity: mac".
func (l *Lab) AddNetwork(name string, id int, prefixes []string, extra string) error {
	l.networks[name] = true
	return l.WriteManifest("network-"+name, object("Network", name, "", append([]string{
		fmt.Sprintf("id: %d", id), "prefixes: " + flow(prefixes)}, lines(extra)...)))
}

// object is a manifest of one object.
func object(kind, name, namespace string, spec []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: picot.dev/v1alpha1\nkind: %s\nmetadata:\n  name: %s\n", kind, name)
	if namespace != "" {
		fmt.Fprintf(&b, "  namespace: %s\n", namespace)
	}
	b.WriteString("spec:\n")
	for _, l := range spec {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	return b.String()
}

func lines(yaml string) []string {
	if yaml = strings.Trim(yaml, "\n"); yaml == "" {
		return nil
	}
	return strings.Split(yaml, "\n")
}

// flow is a YAML list on one line.
func flow(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
