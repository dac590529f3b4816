package webhooktest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// SharedFiles returns the shared bodies of a provider that has more than JSON, in name
// order. Like [Shared], it skips the test where there is no folder.
func SharedFiles(t testing.TB, prefix string, extensions ...string) []Body {
	t.Helper()
	return Files(t, sharedFolder(t), prefix, extensions...)
}

// Files returns the files of a folder with a prefix and one of the extensions, in
// name order. It fails the test if there is none.
func Files(t testing.TB, folder, prefix string, extensions ...string) (bodies []Body) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		match, err := filepath.Match(prefix+"*", e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !match || !slices.Contains(extensions, filepath.Ext(e.Name())) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, Body{Name: e.Name(), Data: data})
	}
	if len(bodies) == 0 {
		t.Fatalf("%s has no %s* with one of %q", filepath.Base(folder), prefix, extensions)
	}
	return bodies
}
