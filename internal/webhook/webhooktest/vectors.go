package webhooktest

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

//go:embed testdata/vectors.json
var kept []byte

// Kept returns the vectors of a scheme that the project keeps itself, those of all
// schemes when it is empty. Each names the place it was published in, or from whose
// rules it was computed by another program.
func Kept(t testing.TB, scheme string) (vectors []Vector) {
	t.Helper()
	var all struct{ Vectors []Vector }
	if err := json.Unmarshal(kept, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all.Vectors {
		if v.Scheme == scheme || scheme == "" {
			vectors = append(vectors, v)
		}
	}
	if len(vectors) == 0 {
		t.Fatalf("no vector of scheme %q is kept", scheme)
	}
	return vectors
}

// SharedSchemes returns the IDs of the vectors that lie beside the shared bodies,
// by scheme. Without the folder the test is skipped.
func SharedSchemes(t testing.TB) map[string][]string {
	data, err := os.ReadFile(filepath.Join(sharedFolder(t), "vectors.json"))
	if err != nil {
		t.Skip("the folder of bodies has no vectors.json")
	}
	var all struct{ Vectors []Vector }
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	ids := make(map[string][]string)
	for _, v := range all.Vectors {
		ids[v.Scheme] = append(ids[v.Scheme], v.ID)
	}
	return ids
}

// Valid reports whether a verifier must accept the vector.
func (v *Vector) Valid() bool { return v.Expected == "valid" }

// Delivery is the vector as it would arrive.
func (v *Vector) Delivery(received time.Time) *inbox.Delivery {
	d := &inbox.Delivery{Method: http.MethodPost, Header: make(http.Header), Body: []byte(v.Body), Received: received}
	for name, value := range v.Headers {
		d.Header.Set(name, value)
	}
	if v.Params != nil {
		form := make(url.Values)
		for name, value := range v.Params {
			form.Set(name, value)
		}
		d.Body = []byte(form.Encode())
	}
	if v.URL != "" {
		d.URL = strings.TrimPrefix(v.URL, v.Origin())
		if _, query, ok := strings.Cut(d.URL, "?"); ok {
			d.Query, _ = url.ParseQuery(query)
		}
	}
	return d
}

// Origin is scheme and host of the vector's URL.
func (v *Vector) Origin() string {
	u, err := url.Parse(v.URL)
	if err != nil {
		panic(err)
	}
	return u.Scheme + "://" + u.Host
}
