package xsk_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// unsafe stays in this package's *_unsafe.go files, in the whole module.
func TestUnsafeStaysInUnsafeFiles(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(root, "xsk")
	seen, fenced := 0, 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		seen++
		allowed := filepath.Dir(path) == here && strings.HasSuffix(path, "_unsafe.go")
		for _, i := range f.Imports {
			switch {
			case i.Path.Value != `"unsafe"`:
			case allowed:
				fenced++
			default:
				t.Errorf("%s imports unsafe", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 || fenced == 0 {
		t.Fatalf("looked at %d files and found unsafe in %d: looking in the wrong place", seen, fenced)
	}
}
