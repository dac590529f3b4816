package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

//go:embed bodies
var embedded embed.FS

// errBodies says that there is nothing to deliver.
var errBodies = errors.New("no bodies")

// A body is what one provider sends in one request.
type body struct {
	provider  *provider
	bytes     []byte
	sealed    bool   // sent encrypted, where the provider has a mode for that
	positions string // with -order: what the header says
}

// readBodies reads the bodies of a folder, or the embedded ones, in the order of
// their names. It counts the other .json and .xml files.
func readBodies(dir string) (bodies []body, skipped int, err error) {
	files := fs.FS(embedded)
	root := "bodies"
	if dir != "" {
		files, root = os.DirFS(dir), "."
	}
	entries, err := fs.ReadDir(files, root)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBodies, err)
	}
	for _, e := range entries {
		name := e.Name()
		if ext := path.Ext(name); e.IsDir() || ext != ".json" && ext != ".xml" {
			continue
		}
		prefix, _, _ := strings.Cut(name, "-")
		p := providerOf(prefix)
		if p == nil {
			skipped++
			continue
		}
		b, err := fs.ReadFile(files, path.Join(root, name))
		if err != nil {
			return nil, 0, err
		}
		next := body{provider: p, bytes: b}
		if p.open != nil { // every second body, and what is encrypted in its file
			if next.bytes, err = p.open(b); err != nil {
				return nil, 0, fmt.Errorf("%s: %w", name, err)
			}
			next.sealed = len(bodies)%2 == 1 || len(next.bytes) != len(b)
		}
		bodies = append(bodies, next)
	}
	if len(bodies) == 0 {
		return nil, skipped, fmt.Errorf("%w: no file of a known provider in %s, such as meta-*.json", errBodies, dir)
	}
	return bodies, skipped, nil
}
