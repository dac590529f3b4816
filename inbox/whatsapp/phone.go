package whatsapp

import (
	"encoding/json"

	"github.com/pawl-go/pawl/inbox"
)

// PhoneNumberID returns Meta's ID of the business phone number that an event is
// about, as metadata.phone_number_id of its context says; empty if it does not, as
// for events about the account. Event.Phone is the number itself.
func PhoneNumberID(e inbox.Event) string {
	var body struct {
		Entry []struct {
			Changes []struct {
				Value struct {
					Metadata struct {
						PhoneNumberID string `json:"phone_number_id"`
					} `json:"metadata"`
				} `json:"value"`
			} `json:"changes"`
		} `json:"entry"`
	}
	if json.Unmarshal(e.Context, &body) != nil || len(body.Entry) != 1 || len(body.Entry[0].Changes) != 1 {
		return ""
	}
	return body.Entry[0].Changes[0].Value.Metadata.PhoneNumberID
}
