package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is where a file is too long to be one thing.
const maxLines = 500

// file is a Go source file under version control.
type file struct {
	path string // from the repository's root
	src  []byte
	ast  *ast.File
}

func (f file) test() bool      { return strings.HasSuffix(f.path, "_test.go") }
func (f file) generated() bool { return ast.IsGenerated(f.ast) }

func (f file) imports(path string) bool {
	for _, i := range f.ast.Imports {
		if i.Path.Value == `"`+path+`"` {
			return true
		}
	}
	return false
}

// tracked lists the files of the repository, also new ones that are not ignored.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the repository's files, of git: %v: run the tests in a work tree", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

func goFiles(t *testing.T) []file {
	t.Helper()
	var files []file
	for _, path := range tracked(t) {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root(), path))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse: %v", err)
			continue
		}
		files = append(files, file{path, src, parsed})
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found", len(files))
	}
	return files
}

func TestFilesAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if lines := bytes.Count(f.src, []byte("\n")); !f.test() && !f.generated() && lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: give its parts rooms of their own", f.path, lines, maxLines)
		}
	}
}

// Work at import time hides state and order; say it where it is used.
func TestNoInitFunctions(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.generated() {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function", f.path)
			}
		}
	}
}

// Every package says what it is for.
func TestPackagesAreDocumented(t *testing.T) {
	documented, dirs := map[string]bool{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test() {
			continue
		}
		dir := filepath.Dir(f.path)
		dirs[dir] = true
		if f.ast.Doc != nil {
			documented[dir] = true
		}
	}
	for dir := range dirs {
		if !documented[dir] {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

// unfinished finds promises and places that do not belong into the repository. The
// pattern is spelled so that it does not find itself.
var unfinished = regexp.MustCompile(`\bTOD` + `O\b|\bFIX` + `ME\b|\bXX` + `X\b|\.\./sha` + `red\b|\bDES` + `IGN\.md\b|(^|[\s"'(=])/wo` + `rk/|/tmp/pi` + `cot/(RULES|CONTRACT)`)

func TestNothingUnfinishedOrLocal(t *testing.T) {
	for _, path := range tracked(t) {
		src, err := os.ReadFile(filepath.Join(root(), path))
		if err != nil || bytes.IndexByte(src, 0) >= 0 {
			continue // gone, a link to nowhere, or binary
		}
		for i, line := range strings.Split(string(src), "\n") {
			if found := unfinished.FindString(line); found != "" {
				t.Errorf("%s:%d: %q", path, i+1, found)
			}
		}
	}
	for _, bad := range []string{"// TOD" + "O: later", "see ../sha" + "red/x", "cd /wo" + "rk/main", "DES" + "IGN.md"} {
		if !unfinished.MatchString(bad) {
			t.Errorf("the pattern does not find %q", bad)
		}
	}
}
