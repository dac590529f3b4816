package signature_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/signature"
)

// A scheme that would verify less than its writer believes is refused.
func TestNewRefuses(t *testing.T) {
	change := func(s signature.Scheme, f func(*signature.Scheme)) signature.Scheme {
		f(&s)
		return s
	}
	for name, s := range map[string]signature.Scheme{
		"nothing":                    {},
		"no header":                  change(github(), func(s *signature.Scheme) { s.Header = "" }),
		"no key rule":                change(github(), func(s *signature.Scheme) { s.Key = signature.KeyRule{} }),
		"no parts":                   change(github(), func(s *signature.Scheme) { s.Signed = nil }),
		"the zero part":              change(github(), func(s *signature.Scheme) { s.Signed = []signature.Part{{}, signature.Body()} }),
		"a body that is not signed":  change(stripe(), func(s *signature.Scheme) { s.Signed = []signature.Part{signature.Time()} }),
		"a time that is not signed":  change(stripe(), func(s *signature.Scheme) { s.Signed = []signature.Part{signature.Body()} }),
		"a time that stands nowhere": change(github(), func(s *signature.Scheme) { s.Signed = stripe().Signed }),
		"two places for the time":    change(stripe(), func(s *signature.Scheme) { s.TimeHeader = "X-Time" }),
		"a time item in no list":     change(stripe(), func(s *signature.Scheme) { s.Separator = "" }),
		"prefixes alike":             change(stripe(), func(s *signature.Scheme) { s.TimePrefix = "v1=" }),
		"no prefix beside a time's":  change(stripe(), func(s *signature.Scheme) { s.Prefix = "" }),
		"negative tolerance":         change(stripe(), func(s *signature.Scheme) { s.Tolerance = -1 }),
		"negative skew":              change(stripe(), func(s *signature.Scheme) { s.Skew = -1 }),
		"tolerance without a time":   change(github(), func(s *signature.Scheme) { s.Tolerance = 1 }),
		"another hash":               change(github(), func(s *signature.Scheme) { s.Hash = 7 }),
		"another encoding":           change(github(), func(s *signature.Scheme) { s.Encoding = -1 }),
		"a header without a name":    change(github(), func(s *signature.Scheme) { s.Signed = []signature.Part{signature.Header(""), signature.Body()} }),
		"no URL":                     twilioForm(),
		"five URLs":                  twilioForm(origin, origin, origin, origin, origin),
		"two URL parts": change(twilioForm(origin), func(s *signature.Scheme) {
			s.Signed = append(s.Signed, signature.URL(origin))
		}),
		"a digest that is not signed": change(twilioForm(origin), func(s *signature.Scheme) { s.Signed = []signature.Part{signature.QueryDigest("d")} }),
		"a URL without a scheme":      twilioForm("hooks.example.com"),
		"a URL without a host":        twilioForm("https://"),
		"another scheme":              twilioForm("ftp://hooks.example.com"),
		"a slash at the end":          twilioForm(origin + "/"),
		"a query":                     twilioForm(origin + "?a"),
		"a fragment":                  twilioForm(origin + "#"),
		"a user":                      twilioForm("https://user:" + secret + "@hooks.example.com"),
	} {
		v, err := signature.New(s, signature.Secret{Value: secret})
		if v != nil || !errors.Is(err, inbox.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		if err := s.Sign(secret, now, delivery("{}")); !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("%s: signed: %v", name, err)
		}
	}
	// Without a rule not even a secret that every rule could read becomes a key.
	unruled := github()
	unruled.Key = signature.KeyRule{}
	if v, err := signature.New(unruled, signature.Secret{Value: "c2VjcmV0"}); v != nil || !errors.Is(err, inbox.ErrInvalid) {
		t.Errorf("no key rule: %v, %v", v, err)
	}
	for name, secrets := range map[string][]signature.Secret{
		"none":          {},
		"an empty one":  {{Value: secret}, {}},
		"ends too soon": {{Value: secret, NotBefore: now, NotAfter: now.Add(-1)}},
		"too many":      make([]signature.Secret, 17),
	} {
		if v, err := signature.New(github(), secrets...); v != nil || !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("secrets, %s: %v, %v", name, v, err)
		}
	}
}

func TestNewCopies(t *testing.T) {
	s, secrets := github(), []signature.Secret{{Value: secret}}
	v := verifier(t, s, secrets...)
	s.Signed[0], secrets[0].Value = signature.Text("x"), "changed"
	_, err := v.Verify(delivery("{}", s.Header, "sha256="+mac(secret, "{}")))
	wantReason(t, err, "")
}

func source(t *testing.T, v *signature.Verifier) *signature.Source {
	t.Helper()
	s, err := signature.NewSource(v, &signature.SourceOptions{
		Provider: "shop", Horizon: time.Hour,
		Decode: func(body []byte) ([]inbox.Event, error) {
			if string(body) == "bad" {
				return nil, errors.New("not an order")
			}
			return []inbox.Event{{ID: "shop/" + string(body), Type: "order", Payload: body}}, nil
		},
		ContentTypes: []string{"text/plain"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewSourceRefuses(t *testing.T) {
	v := verifier(t, github())
	decode := func([]byte) ([]inbox.Event, error) { return nil, nil }
	for name, o := range map[string]*signature.SourceOptions{
		"no options":              nil,
		"no decode":               {Provider: "p"},
		"no provider":             {Decode: decode},
		"a slash in the provider": {Provider: "a/b", Decode: decode},
		"a long provider":         {Provider: strings.Repeat("p", 65), Decode: decode},
		"negative horizon":        {Provider: "p", Horizon: -1, Decode: decode},
		"a type with parameters":  {Provider: "p", Decode: decode, ContentTypes: []string{"text/xml; charset=utf-8"}},
		"a type in upper case":    {Provider: "p", Decode: decode, ContentTypes: []string{"Text/XML"}},
		"no type":                 {Provider: "p", Decode: decode, ContentTypes: []string{"xml"}},
	} {
		if s, err := signature.NewSource(v, o); s != nil || !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if s, err := signature.NewSource(nil, &signature.SourceOptions{Provider: "p", Decode: decode}); s != nil || !errors.Is(err, inbox.ErrInvalid) {
		t.Errorf("no verifier: %v, %v", s, err)
	}
	s, err := signature.NewSource(v, &signature.SourceOptions{Provider: "p", Decode: decode})
	if err != nil || len(s.ContentTypes()) != 1 || s.ContentTypes()[0] != "application/json" {
		t.Errorf("without types: %v, %v", s, err)
	}
}

// The handler hands the target of the request to the verifier as it came, and the
// source's words decide what is let in and what is stored.
func TestSourceBehindTheHandler(t *testing.T) {
	scheme := signature.Scheme{
		Header: "X-Signature", Key: signature.KeyUTF8(),
		Signed: []signature.Part{signature.URL(origin + "/public"), signature.Body()},
	}
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := source(t, verifier(t, scheme))
	h, err := inbox.Handler(box, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	const target = "/hook?b=2&a=%2F1&b"
	good := mac(secret, origin, "/public", target, "7")
	for name, tt := range map[string]struct {
		target, body, mac, media string
		code                     int
		reason                   inbox.Reason
	}{
		"good":           {target, "7", good, "text/plain", 200, ""},
		"absolute":       {"http://inside:8080" + target, "7", good, "text/plain", 200, ""},
		"another path":   {"/hook2?b=2&a=%2F1&b", "7", good, "text/plain", 401, inbox.WrongSignature},
		"unescaped":      {"/hook?b=2&a=/1&b", "7", good, "text/plain", 401, inbox.WrongSignature},
		"a changed body": {target, "8", good, "text/plain", 401, inbox.WrongSignature},
		"no signature":   {target, "7", "", "text/plain", 401, inbox.NoSignature},
		"JSON":           {target, "7", good, "application/json", 415, inbox.BadType},
		"undecodable":    {target, "bad", mac(secret, origin, "/public", target, "bad"), "text/plain", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := box.Stats().Rejected[tt.reason]
			r := httptest.NewRequest("POST", tt.target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.media)
			r.Header.Set("X-Signature", tt.mac)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.code {
				t.Errorf("answered %d, want %d", w.Code, tt.code)
			}
			if tt.reason != "" && box.Stats().Rejected[tt.reason] != before+1 {
				t.Errorf("counted %v, want %q once more", box.Stats().Rejected, tt.reason)
			}
		})
	}
	// A mux that takes a prefix off the path leaves the target alone.
	r := httptest.NewRequest("POST", target, strings.NewReader("7"))
	r.Header.Set("Content-Type", "text/plain")
	r.Header.Set("X-Signature", good)
	w := httptest.NewRecorder()
	http.StripPrefix("/hook", h).ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("behind a mux that takes a prefix off: answered %d", w.Code)
	}
	st := box.Stats()
	if st.Accepted != 1 || st.Duplicates != 2 || st.Quarantined != 1 {
		t.Errorf("the counts are %+v", st)
	}
	if s.Provider() != "shop" || s.Horizon() != time.Hour {
		t.Errorf("provider %q, horizon %v", s.Provider(), s.Horizon())
	}
}
