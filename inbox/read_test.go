package inbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
)

func TestFind(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), &inbox.Options{Keys: keys("a")})
	es := events("k", "1", "2", "3", "4")
	for i := range es {
		es[i].MessageID, es[i].ExternalID = "wamid.1", "order 7"
	}
	es[3].MessageID, es[3].ExternalID = "wamid.2", "order 8"
	accept(t, b, es...)
	for name, find := range map[string]func(string, uint64, int) ([]inbox.Record, error){
		"wamid.1": func(id string, after uint64, n int) ([]inbox.Record, error) {
			return b.FindByMessage(t.Context(), id, after, n)
		},
		"order 7": func(id string, after uint64, n int) ([]inbox.Record, error) {
			return b.FindByExternal(t.Context(), id, after, n)
		},
	} {
		rs, err := find(name, 0, 2)
		if err != nil || len(rs) != 2 || string(rs[0].Payload) != "payload of 1" {
			t.Fatalf("%s: %+v, %v", name, rs, err)
		}
		rs, err = find(name, rs[1].Seq, 2)
		if err != nil || len(rs) != 1 || short(rs[0]) != "3" {
			t.Errorf("%s, second page: %+v, %v", name, rs, err)
		}
		if rs, err := find("nothing", 0, 2); err != nil || len(rs) != 0 {
			t.Errorf("nothing: %+v, %v", rs, err)
		}
		for _, err := range []error{second(find("", 0, 1)), second(find("\x00", 0, 1)), second(find(strings.Repeat("x", 1025), 0, 1)), second(find(name, 0, 0)), second(find(name, 0, 1001))} {
			if !errors.Is(err, inbox.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	}
}
