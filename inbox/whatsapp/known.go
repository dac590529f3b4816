package whatsapp

import "github.com/pawl-go/pawl/internal/webhook"

// What this package knows the meaning of. Anything else is decoded just the same
// and marked Unknown, so that new types show and none is lost. Most lists are
// Meta's; "deleted" and "voice" appear in bodies that receivers have published.

var knownFields = webhook.Set(
	"messages", "message_echoes", "smb_message_echoes", "smb_app_state_sync", "history", "calls",
	"group_lifecycle_update", "group_participants_update", "group_settings_update", "group_status_update",
	"account_alerts", "account_review_update", "account_settings_update", "account_update",
	"business_capability_update", "business_status_update", "business_username_update",
	"message_template_components_update", "message_template_quality_update", "message_template_status_update",
	"template_category_update", "phone_number_name_update", "phone_number_quality_update",
	"flows", "partner_solutions", "payment_configuration_update", "security", "user_preferences",
	"user_id_update", "automatic_events", "messaging_handovers", "standby", "tracking_events",
)

// carriers are the fields that consist of elements. Without any, and without
// errors to say why, they hold something new.
var carriers = webhook.Set("messages", "message_echoes", "smb_message_echoes", "smb_app_state_sync", "history", "calls",
	"group_lifecycle_update", "group_participants_update", "group_settings_update", "group_status_update")

var messageTypes = []string{
	"text", "image", "audio", "voice", "video", "document", "sticker", "location", "contacts", "interactive",
	"button", "reaction", "order", "system", "unsupported", "unknown", "edit", "revoke", "request_welcome",
}

var knownDetails = map[string]map[string]bool{
	"messages":       webhook.Set(messageTypes...),
	"message_echoes": webhook.Set(messageTypes...),
	"history":        webhook.Set(append([]string{"media_placeholder"}, messageTypes...)...),
	"statuses": webhook.Set("sent", "delivered", "read", "played", "failed", "deleted",
		"RINGING", "ACCEPTED", "REJECTED"), // the last three of calls
	"calls": webhook.Set("connect", "terminate"),
	"groups": webhook.Set("group_create", "group_delete", "group_participants_add", "group_participants_remove",
		"group_join_request_created", "group_join_request_revoked", "group_settings_update", "group_suspend", "group_suspend_cleared"),
	"state_sync": webhook.Set("contact"),
}
