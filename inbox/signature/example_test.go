package signature_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/signature"
)

// Stripe signs the time and the body, and sends several signatures while a secret
// is rolled. It re-sends for 3 days and signs each time anew.
func ExampleNew_stripe() {
	scheme := signature.Scheme{
		Header: "Stripe-Signature", Separator: ",", Prefix: "v1=", TimePrefix: "t=",
		Signed: []signature.Part{signature.Time(), signature.Text("."), signature.Body()},
		Key:    signature.KeyUTF8(), // the whole secret, whsec_ included
	}
	rolled := time.Now()
	verifier, err := signature.New(scheme,
		signature.Secret{Value: "whsec_old", NotAfter: rolled.Add(24 * time.Hour)},
		signature.Secret{Value: "whsec_new", NotBefore: rolled})
	if err != nil {
		panic(err)
	}
	source, err := signature.NewSource(verifier, &signature.SourceOptions{
		Provider: "stripe", Horizon: 3 * 24 * time.Hour, Decode: decodeStripe,
	})
	if err != nil {
		panic(err)
	}

	body := []byte(`{"id": "evt_1", "type": "charge.succeeded", "api_version": "2020-01-01", "created": 1760000000}`)
	d := &inbox.Delivery{Header: make(http.Header), Body: body, Received: time.Now()}
	if err := scheme.Sign("whsec_old", time.Now(), d); err != nil { // as Stripe does
		panic(err)
	}
	show(source, d)
	d.Received = d.Received.Add(time.Hour)
	show(source, d)
	// Output:
	// stripe/evt_1 charge.succeeded
	// signed too long ago
}

func decodeStripe(body []byte) ([]inbox.Event, error) {
	var e struct {
		ID, Type   string
		APIVersion string `json:"api_version"`
		Created    int64
	}
	if err := json.Unmarshal(body, &e); err != nil || e.ID == "" {
		return nil, errors.New("stripe: the body is no event; keep it")
	}
	return []inbox.Event{{ID: "stripe/" + e.ID, Type: e.Type, Version: e.APIVersion,
		Occurred: time.Unix(e.Created, 0), Payload: body}}, nil
}

// GitHub signs the body alone. Its delivery ID stands in a header that is not
// signed, so the identity is a fingerprint of the body. It re-sends nothing by
// itself, and verifies what it once has for ever.
func ExampleNew_github() {
	scheme := signature.Scheme{
		Header: "X-Hub-Signature-256", Prefix: "sha256=",
		Signed: []signature.Part{signature.Body()},
		Key:    signature.KeyUTF8(),
	}
	verifier, err := signature.New(scheme, signature.Secret{Value: "It's a Secret to Everybody"})
	if err != nil {
		panic(err)
	}
	source, err := signature.NewSource(verifier, &signature.SourceOptions{
		Provider: "github",
		Decode: func(body []byte) ([]inbox.Event, error) {
			sum := sha256.Sum256(body)
			return []inbox.Event{{ID: "github/fp/" + hex.EncodeToString(sum[:16]), Fingerprinted: true,
				Type: "event", Payload: body}}, nil
		},
	})
	if err != nil {
		panic(err)
	}

	d := &inbox.Delivery{Header: make(http.Header), Body: []byte("Hello, World!"), Received: time.Now()}
	// The value in GitHub's documentation.
	d.Header.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	show(source, d)
	d.Body = []byte("Hello, world!")
	show(source, d)
	// Output:
	// github/fp/dffd6021bb2bd5b0af676290809ec3a5 event
	// wrong signature
}

// Slack names the version in what it signs, and the time in a header of its own.
// When you enter the URL it sends a url_verification whose challenge the answer has
// to hold; answer that one in front of inbox.Handler.
func ExampleNew_slack() {
	scheme := signature.Scheme{
		Header: "X-Slack-Signature", Prefix: "v0=", TimeHeader: "X-Slack-Request-Timestamp",
		Signed: []signature.Part{signature.Text("v0:"), signature.Time(), signature.Text(":"), signature.Body()},
		Key:    signature.KeyUTF8(),
	}
	verifier, err := signature.New(scheme, signature.Secret{Value: "the signing secret"})
	if err != nil {
		panic(err)
	}
	source, err := signature.NewSource(verifier, &signature.SourceOptions{
		Provider: "slack", Horizon: time.Hour, Decode: decodeSlack,
	})
	if err != nil {
		panic(err)
	}

	body := []byte(`{"team_id": "T1", "event_id": "Ev1", "event": {"type": "app_mention", "channel": "C1"}}`)
	d := &inbox.Delivery{Header: make(http.Header), Body: body, Received: time.Now()}
	if err := scheme.Sign("the signing secret", time.Now(), d); err != nil { // as Slack does
		panic(err)
	}
	show(source, d)
	d.Header.Set("X-Slack-Request-Timestamp", "1531420618")
	show(source, d)
	// Output:
	// slack/Ev1 app_mention
	// wrong signature
}

func decodeSlack(body []byte) ([]inbox.Event, error) {
	var e struct {
		EventID string `json:"event_id"`
		TeamID  string `json:"team_id"`
		Event   struct{ Type, Channel string }
	}
	if err := json.Unmarshal(body, &e); err != nil || e.EventID == "" {
		return nil, errors.New("slack: the body is no event; keep it")
	}
	return []inbox.Event{{ID: "slack/" + e.EventID, Type: e.Event.Type, Account: e.TeamID,
		Key: "slack/" + e.TeamID + "/" + e.Event.Channel, Payload: body}}, nil
}

// Twilio signs the public URL and the form, which inbox.Handler takes when the
// source says so. The proxy in front of this program has the public name; Twilio
// may or may not have signed the standard port.
func ExampleNew_twilio() {
	scheme := signature.Scheme{
		Header: "X-Twilio-Signature", Hash: signature.SHA1, Encoding: signature.Base64,
		Signed: []signature.Part{
			signature.URL("https://hooks.example.com", "https://hooks.example.com:443"),
			signature.SortedForm(),
		},
		Key: signature.KeyUTF8(),
	}
	verifier, err := signature.New(scheme, signature.Secret{Value: "the auth token"})
	if err != nil {
		panic(err)
	}
	source, err := signature.NewSource(verifier, &signature.SourceOptions{
		Provider: "twilio", ContentTypes: []string{"application/x-www-form-urlencoded"},
		Decode: func(body []byte) ([]inbox.Event, error) {
			form, err := url.ParseQuery(string(body))
			if err != nil || form.Get("MessageSid") == "" {
				return nil, errors.New("twilio: the body is no message; keep it")
			}
			sid, status := form.Get("MessageSid"), form.Get("MessageStatus")
			return []inbox.Event{{ID: "twilio/" + sid + "/" + status, Type: "message." + status,
				MessageID: sid, Key: "twilio/" + sid, Payload: body}}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	handler, err := inbox.Handler(box, source, nil)
	if err != nil {
		panic(err)
	}

	body := "MessageSid=SM1&MessageStatus=delivered"
	signed := &inbox.Delivery{URL: "/twilio?flow=7", Header: make(http.Header), Body: []byte(body)}
	if err := scheme.Sign("the auth token", time.Now(), signed); err != nil { // as Twilio does
		panic(err)
	}
	for _, target := range []string{"http://10.0.0.7:8080/twilio?flow=7", "http://10.0.0.7:8080/twilio?flow=8"} {
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
		r.Header = signed.Header
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	fmt.Println(box.Stats().Accepted, "accepted")
	// Output:
	// 200
	// 401
	// 1 accepted
}

// Twilio signs the URL of a JSON body, and the digest of the body stands in it.
func ExampleNew_twilioJSON() {
	scheme := signature.Scheme{
		Header: "X-Twilio-Signature", Hash: signature.SHA1, Encoding: signature.Base64,
		Signed: []signature.Part{signature.URL("https://mycompany.com"), signature.QueryDigest("bodySHA256")},
		Key:    signature.KeyUTF8(),
	}
	verifier, err := signature.New(scheme, signature.Secret{Value: "12345"})
	if err != nil {
		panic(err)
	}
	// The values in the tests of Twilio's library.
	d := &inbox.Delivery{
		URL:    "/myapp.php?foo=1&bar=2&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620",
		Header: http.Header{"X-Twilio-Signature": {"a9nBmqA0ju/hNViExpshrM61xv4="}},
		Body:   []byte(`{"property": "value", "boolean": true}`), Received: time.Now(),
	}
	_, err = verifier.Verify(d)
	fmt.Println(err)
	d.Body = []byte(`{"property": "value", "boolean": false}`)
	_, err = verifier.Verify(d)
	fmt.Println(err)
	// Output:
	// <nil>
	// inbox: delivery rejected: wrong signature: the body is not the one whose digest is signed
}

// show does what inbox.Handler does for every request, without storing.
func show(source inbox.Source, d *inbox.Delivery) {
	body, err := source.Verify(d)
	if r, ok := errors.AsType[*inbox.RejectError](err); ok {
		fmt.Println(r.Reason)
		return
	}
	events, err := source.Decode(body)
	if err != nil {
		panic(err)
	}
	for _, e := range events {
		fmt.Println(e.ID, e.Type)
	}
}
