package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "picot.dev/picot"

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Standard   bool
	Deps       []string // transitive
	Imports    []string
	GoFiles    []string
	CgoFiles   []string
}

// rel is the import path below the module, "" for the module's root.
func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// packages lists every package of the module with its dependencies.
var packages = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Name,Standard,Deps,Imports,GoFiles,CgoFiles", "./...")
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// root is the repository; a test runs in its package's directory.
func root() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		return "../.."
	}
	return dir
}

func list(t *testing.T) []pkg {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if len(all) < 5 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// rule forbids packages (of this module, by path below it, test support aside) to depend, over any
// number of steps, on others (by full import path). "x" means x and all below it.
type rule struct {
	name   string
	from   []string
	except []string // of from
	to     []string
}

func ours(rels ...string) []string {
	full := make([]string, len(rels))
	for i, r := range rels {
		full[i] = module + "/" + r
	}
	return full
}

var rules = []rule{
	{
		name: "the data plane's pure part knows neither the cluster nor netlink, logs nor metrics",
		from: []string{"fastpath", "arpnd", "icmperr", "learning", "xsk", "internal/packet", "internal/spsc"},
		to: []string{"k8s.io", "sigs.k8s.io", "github.com/vishvananda/netlink", "log/slog", "log",
			"github.com/prometheus"},
		except: []string{"xsk/xdp"},
	},
	{
		name: "the XDP loader knows neither the cluster, logs nor metrics",
		from: []string{"xsk/xdp"},
		to:   []string{"k8s.io", "sigs.k8s.io", "log/slog", "github.com/prometheus"},
	},
	{name: "k8s does not know fastpath", from: []string{"k8s"}, to: ours("fastpath", "xsk", "arpnd")},
	{name: "fastpath does not know k8s", from: []string{"fastpath", "arpnd", "learning", "xsk"}, to: ours("k8s", "gateway")},
	{name: "gateway does not know k8s", from: []string{"gateway"}, to: ours("k8s")},
	{name: "k8s does not know gateway", from: []string{"k8s"}, to: ours("gateway")},
	{
		name: "only cmd imports internal/agent",
		from: []string{""}, except: []string{"cmd", "internal/agent", "test"},
		to: ours("internal/agent"),
	},
	{name: "nothing imports cmd", from: []string{""}, except: []string{"cmd"}, to: ours("cmd")},
}

// under says whether path is one of the prefixes or below one.
func under(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return p == "" || path == p || strings.HasPrefix(path, p+"/")
	})
}

// support says whether a package only serves tests and measurements: it is, or lies
// below, <what>test or <what>bench (bench itself is a command's), testnet, or test/.
func support(path string) bool {
	rel, ok := strings.CutPrefix(path, module+"/")
	return ok && slices.ContainsFunc(strings.Split(rel, "/"), func(e string) bool {
		return strings.HasSuffix(e, "test") || e == "testnet" || strings.HasSuffix(e, "bench") && e != "bench"
	})
}

// violations returns "package depends on other" for every breach.
func (r rule) violations(all []pkg) []string {
	var bad []string
	for _, p := range all {
		if support(p.ImportPath) || !under(p.rel(), r.from) || len(r.except) > 0 && under(p.rel(), r.except) {
			continue
		}
		for _, dep := range p.Deps {
			if under(dep, r.to) {
				bad = append(bad, p.ImportPath+" depends on "+dep)
			}
		}
	}
	return bad
}

func TestImportRules(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, v := range r.violations(all) {
				t.Error(v)
			}
		})
	}
}

func TestTestSupportIsForTestsOnly(t *testing.T) {
	for _, p := range list(t) {
		if support(p.ImportPath) {
			continue
		}
		for _, dep := range p.Deps {
			if support(dep) {
				t.Errorf("%s depends on %s, which is for tests", p.ImportPath, dep)
			}
		}
		// Only directly: libraries outside of our hands depend on it too.
		if slices.Contains(p.Imports, "testing") {
			t.Errorf("%s imports testing", p.ImportPath)
		}
	}
}

// A rule that matches no package, or a checker that finds nothing, would hold by
// accident.
func TestImportRulesCanFail(t *testing.T) {
	breach := map[string]pkg{
		rules[0].name: {ImportPath: module + "/fastpath/srv6", Deps: []string{"fmt", "log/slog"}},
		rules[2].name: {ImportPath: module + "/k8s/source", Deps: []string{module + "/fastpath/table"}},
		rules[6].name: {ImportPath: module + "/gateway/flows", Deps: []string{module + "/internal/agent"}},
	}
	for _, r := range rules {
		p, ok := breach[r.name]
		if !ok {
			continue
		}
		if len(r.violations([]pkg{p})) != 1 {
			t.Errorf("%q does not see %s -> %v", r.name, p.ImportPath, p.Deps)
		}
	}
	fine := pkg{ImportPath: module + "/cmd/picot", Deps: []string{module + "/internal/agent"}}
	for _, r := range rules {
		if v := r.violations([]pkg{fine}); len(v) > 0 {
			t.Errorf("%q refuses %v", r.name, v)
		}
	}
}

// unsafe is used in package xsk only, in files named *_unsafe.go; generated code
// (deepcopy, bpf2go) does not need it either.
func TestUnsafeStaysInXSK(t *testing.T) {
	seen := 0
	for _, f := range goFiles(t) {
		if !f.imports("unsafe") {
			continue
		}
		if filepath.ToSlash(filepath.Dir(f.path)) != "xsk" || !strings.HasSuffix(f.path, "_unsafe.go") && !f.test() {
			t.Errorf("%s imports unsafe: only xsk/*_unsafe.go may", f.path)
			continue
		}
		seen++
	}
	if seen == 0 {
		t.Error("no file imports unsafe: is the check still looking at xsk?")
	}
}

func TestPackageNamesSaySomething(t *testing.T) {
	for _, p := range list(t) {
		for _, bad := range []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "base"} {
			if p.Name == bad || slices.Contains(strings.Split(p.rel(), "/"), bad) {
				t.Errorf("%s: name it after what it does", p.ImportPath)
			}
		}
	}
}
