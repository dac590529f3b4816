package signature_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/signature"
)

// In every scheme, whatever comes is rejected unless it was signed with the key,
// and what was signed with it is accepted.
func FuzzVerify(f *testing.F) {
	at := fmt.Sprint(now.Unix())
	f.Add("t="+at+",v1="+mac(secret, at, ".", "{}"), at, "/?a=b", []byte("{}"))
	f.Add("v0="+mac(secret, "v0:", at, ":", "a=b&a=c"), at, "/?bodySHA256="+strings.Repeat("0", 64), []byte("a=b&a=c"))
	f.Add("v1,"+mac1(secret, "x")+" v1,x v1a,y", "-1", "/?bodySHA256=%", []byte("%zz"))
	f.Add("sha256="+mac(secret, "{}"), "", "", []byte("{}"))
	schemes := []signature.Scheme{stripe(), github(), slack(), twilioForm(origin, origin+":443"), twilioJSON(origin), standard()}
	key := "whsec_c2VjcmV0"
	verifiers := make([]*signature.Verifier, len(schemes))
	for i, s := range schemes {
		verifiers[i] = verifier(f, s, signature.Secret{Value: key})
	}
	f.Fuzz(func(t *testing.T, header, stamp, target string, body []byte) {
		for i, s := range schemes {
			d := delivery(string(body), s.Header, header, "webhook-id", "msg_1")
			d.URL = target
			if s.TimeHeader != "" {
				d.Header.Set(s.TimeHeader, stamp)
			}
			if got, err := verifiers[i].Verify(d); got != nil || !errors.Is(err, inbox.ErrRejected) {
				t.Errorf("scheme %d: what nobody signed with the key gives %q, %v", i, got, err)
			}
			signed := delivery(string(body), "webhook-id", "msg_1")
			signed.URL = target
			if s.Sign(key, now, signed) != nil {
				continue // no form, or no URL
			}
			if got, err := verifiers[i].Verify(signed); err != nil || !bytes.Equal(got, body) {
				t.Errorf("scheme %d: what was signed gives %q, %v", i, got, err)
			}
		}
	})
}
