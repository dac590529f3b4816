package wechat

import "github.com/pawl-go/pawl/internal/webhook"

// readNames are the names at the top of a push that are read.
var readNames = webhook.Set("ToUserName", "FromUserName", "CreateTime", "MsgType", "Event", "EventKey", "MsgId", "MsgID",
	"InfoType", "AppId", "AuthorizerAppid", "SuiteId", "TimeStamp", "action", "Encrypt",
	"OrderId", "merchant_trade_no", "OutTradeNo")

// ownOrder is where an event echoes the order number that you made.
var ownOrder = map[string]string{
	"add_express_path":              "OrderId",
	"trade_manage_remind_shipping":  "merchant_trade_no",
	"trade_manage_order_settlement": "merchant_trade_no",
	"xpay_goods_deliver_notify":     "OutTradeNo",
	"xpay_coin_pay_notify":          "OutTradeNo",
}

// knownTypes are the MsgTypes of messages. Any other is decoded just the same and
// marked Unknown, and so it is with events and notices.
var knownTypes = webhook.Set("text", "image", "voice", "video", "shortvideo", "location", "link", "file", "miniprogrampage")

// knownEvents are the Events that the pages on event pushes and on mini-programs'
// abilities list.
var knownEvents = webhook.Set(
	"subscribe", "unsubscribe", "SCAN", "LOCATION", "CLICK", "VIEW", "view_miniprogram",
	"scancode_push", "scancode_waitmsg", "pic_sysphoto", "pic_photo_or_album", "pic_weixin", "location_select",
	"MASSSENDJOBFINISH", "TEMPLATESENDJOBFINISH", "PUBLISHJOBFINISH",
	"subscribe_msg_popup_event", "subscribe_msg_change_event", "subscribe_msg_sent_event",
	"user_enter_tempsession", "kf_create_session", "kf_close_session", "kf_switch_session", "kf_msg_or_event",
	"user_authorization_revoke", "user_authorization_cancellation", "user_info_modified",
	"add_express_path", "trade_manage_remind_access_api", "trade_manage_remind_shipping", "trade_manage_order_settlement",
	"xpay_goods_deliver_notify", "xpay_coin_pay_notify", "xpay_refund_notify", "xpay_complaint_notify",
	"wxa_media_check", "wxa_nickname_audit", "wxa_privacy_apply", "wxa_illegal_record", "wxa_appeal_record", "wxa_category_audit",
	"weapp_audit_success", "weapp_audit_fail", "weapp_audit_delay",
	"qualification_verify_success", "qualification_verify_fail", "naming_verify_success", "naming_verify_fail",
	"annual_renew", "verify_expired", "debug_demo",
	"enter_agent", "change_contact", "change_external_contact", "change_external_chat", "batch_job_result",
)

// knownInfos are the InfoTypes of third-party platforms.
var knownInfos = webhook.Set("component_verify_ticket", "authorized", "unauthorized", "updateauthorized",
	"notify_third_fasteregister", "suite_ticket", "create_auth", "change_auth", "cancel_auth", "reset_permanent_code", "change_contact")
