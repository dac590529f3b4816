package whatsapp_test

import (
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
)

func TestPhoneNumberID(t *testing.T) {
	source, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: "secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"entry":[{"id":"1","changes":[{"field":"messages","value":{"metadata":{"display_phone_number":"15550001","phone_number_id":"106"},"messages":[{"id":"a","from":"49","type":"text"}]}}]}]}`: "106",
		`{"entry":[{"id":"1","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":106},"messages":[{"id":"a","from":"49","type":"text"}]}}]}]}`:                                     "",
		`{"entry":[{"id":"1","changes":[{"field":"account_update","value":{"event":"VERIFIED_ACCOUNT"}}]}]}`:                                                                                         "",
	} {
		events, err := source.Decode([]byte(body))
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", body, events, err)
		}
		if got := whatsapp.PhoneNumberID(events[0]); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	if got := whatsapp.PhoneNumberID(inbox.Event{}); got != "" {
		t.Errorf("an event without context: %q", got)
	}
}
