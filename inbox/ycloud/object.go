package ycloud

import (
	"cmp"
	"strings"

	"github.com/pawl-go/pawl/internal/webhook"
)

// An object is what an envelope holds beside its own fields: whatsappMessage,
// whatsappGroup and so on. All are read alike, so that a new type has its key and
// its IDs as soon as it appears.
type object struct {
	name                  string
	account               string
	business, person      string // digits, or a user ID
	messageID, externalID string
	occurred              string
}

func readObject(name string, v webhook.Value) object {
	o := object{name: name}
	text := make(map[string]string)
	for m := range v.Members() {
		if s, ok := m.Value.Text(); ok && readNames[string(m.Name)] {
			text[string(m.Name)] = s
		}
		if string(m.Name) == "statuses" {
			o.messageID = sharedID(m.Value)
		}
	}
	o.account = text["wabaId"]
	if o.account == "" && name == "whatsappBusinessAccount" {
		o.account = text["id"]
	}
	o.externalID = text["externalId"]
	o.occurred = cmp.Or(text["updateTime"], text["sendTime"], text["webhookTime"])

	sender := webhook.Party{Number: text["from"], User: text["fromUserId"], Parent: text["fromParentUserId"]}
	receiver := webhook.Party{
		Number: text["to"],
		User:   cmp.Or(text["toUserId"], text["recipientUserId"]),
		Parent: cmp.Or(text["toParentUserId"], text["recipientParentUserId"]),
	}
	if sender != (webhook.Party{}) || receiver != (webhook.Party{}) {
		o.messageID = cmp.Or(text["wamid"], text["wacid"], text["id"])
		person, business := receiver, sender
		if strings.Contains(name, "Inbound") || text["direction"] == "USER_INITIATED" {
			person, business = sender, receiver
		}
		o.business, o.person = webhook.Phone(business.Number), person.Name()
		return o
	}
	number := webhook.Phone(cmp.Or(text["displayPhoneNumber"], text["phoneNumber"]))
	if aboutPerson[name] {
		o.person = number
	} else {
		o.business = number
	}
	return o
}

// readNames are the members that readObject looks at.
var readNames = webhook.Set("id", "wamid", "wacid", "wabaId", "externalId", "direction",
	"from", "fromUserId", "fromParentUserId", "to", "toUserId", "toParentUserId", "recipientUserId", "recipientParentUserId",
	"phoneNumber", "displayPhoneNumber", "updateTime", "sendTime", "webhookTime")

// aboutPerson are the objects whose phoneNumber is a customer's.
var aboutPerson = webhook.Set("contact", "contactCreated", "contactDeleted", "contactAttributesChanged",
	"contactUnsubscribeCreated", "contactUnsubscribeDeleted", "unsubscriber", "unsubscriberChanged")

// sharedID is the ID of a group's statuses if they are all of one message.
func sharedID(statuses webhook.Value) (shared string) {
	for s := range statuses.Elements() {
		id := ""
		for m := range s.Members() {
			if string(m.Name) == "id" {
				id, _ = m.Value.Text()
			}
		}
		if shared != "" && id != shared {
			return ""
		}
		shared = id
	}
	return shared
}

// knownTypes are the event types that YCloud's overview lists, those of its SDK
// and of its examples. Any other is decoded just the same and marked Unknown.
var knownTypes = webhook.Set(
	"whatsapp.inbound_message.received", "whatsapp.message.updated",
	"whatsapp.template.reviewed", "whatsapp.template.quality_updated", "whatsapp.template.category_updated",
	"whatsapp.business_account.updated", "whatsapp.business_account.reviewed", "whatsapp.business_account.deleted",
	"whatsapp.phone_number.updated", "whatsapp.phone_number.deleted", "whatsapp.phone_number.name_updated",
	"whatsapp.phone_number.quality_updated",
	"whatsapp.payment.updated", "whatsapp.flow.status_change", "whatsapp.user.preferences",
	"whatsapp.call.connect", "whatsapp.call.terminate", "whatsapp.call.status.updated",
	"whatsapp.smb.history", "whatsapp.smb.message.echoes", "whatsapp.smb.message.created", "whatsapp.smb.app.state.sync",
	"whatsapp.group.lifecycle_update", "whatsapp.group.participants_update", "whatsapp.group.settings_update",
	"whatsapp.group.status_update",
	"sms.inbound.received", "sms.message.updated", "email.delivery.updated", "voice.message.updated",
	"contact.created", "contact.deleted", "contact.attributes_changed",
	"contact.unsubscribe.created", "contact.unsubscribe.deleted",
)
