package wechat_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

// checkEvents decodes a body twice and checks what holds for every body, sound or
// not.
func checkEvents(t testing.TB, s *wechat.Source, body []byte) ([]inbox.Event, error) {
	t.Helper()
	before := bytes.Clone(body)
	events, err := s.Decode(body)
	again, _ := s.Decode(body)
	if !reflect.DeepEqual(events, again) {
		t.Error("a second Decode gave other events")
	}
	if !bytes.Equal(before, body) {
		t.Error("Decode changed the body")
	}
	if len(events) > 1 || (err == nil) != (len(events) == 1) {
		t.Errorf("%d events, %v", len(events), err)
	}
	for _, e := range events {
		checkText(t, "ID", e.ID)
		checkText(t, "Key", e.Key)
		for _, s := range []string{e.Account, e.MessageID, e.ExternalID} {
			if s != "" {
				checkText(t, "a field", s)
			}
		}
		if !strings.HasPrefix(e.ID, "wechat/") || !strings.HasPrefix(e.Key, "wechat/") || e.Provider != "wechat" {
			t.Error("not of provider wechat")
		}
		if e.Fingerprinted && !strings.HasPrefix(e.ID, "wechat/fp/") {
			t.Errorf("a fingerprint has the form %s", e.ID)
		}
		if e.Type == "" || strings.ContainsAny(e.Type, "/ \n") {
			t.Errorf("type %q", e.Type)
		}
		want := bytes.Trim(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), " \t\r\n")
		if !bytes.Equal(e.Payload, want) || e.Context != nil || e.Phone != "" || e.Version != "" {
			t.Error("the payload is not the push, or there is a context, a phone or a version")
		}
	}
	return events, err
}

func checkText(t testing.TB, name, s string) {
	t.Helper()
	if s == "" || len(s) > 512 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		t.Errorf("%s of %d bytes is no 1 to 512 bytes of UTF-8 without NUL", name, len(s))
	}
}

func decodeOne(t testing.TB, body string) inbox.Event {
	t.Helper()
	events, err := checkEvents(t, source(t), []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return events[0]
}

func TestEventFields(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, body string
		want       inbox.Event
	}{
		{"XML", "\xef\xbb\xbf\n <xml><ToUserName><![CDATA[gh_a]]></ToUserName><FromUserName><![CDATA[oB]]></FromUserName>" +
			"<CreateTime>1767225600</CreateTime><MsgType><![CDATA[text]]></MsgType><Content>x</Content><MsgId>9223372036854775807</MsgId></xml>\n",
			inbox.Event{ID: "wechat/9223372036854775807", Type: "text", Key: "wechat/gh_a/oB", Account: "gh_a", MessageID: "9223372036854775807"}},
		{"JSON", ` {"ToUserName":"gh_a","FromUserName":"oB","CreateTime":1767225600,"MsgType":"event","Event":"CLICK","EventKey":"k"} `,
			inbox.Event{ID: "wechat/oB/1767225600/CLICK/k", Type: "event.CLICK", Key: "wechat/gh_a/oB", Account: "gh_a"}},
		{"express", `{"ToUserName":"gh_a","FromUserName":"oB","CreateTime":"1767225600","MsgType":"event","Event":"add_express_path","OrderId":"order-1"}`,
			inbox.Event{ID: "wechat/oB/1767225600/add_express_path/", Type: "event.add_express_path", Key: "wechat/gh_a/oB", Account: "gh_a", ExternalID: "order-1"}},
		{"another's order", `{"ToUserName":"gh_a","FromUserName":"oB","CreateTime":1767225600,"MsgType":"event","Event":"CLICK","OrderId":"order-1"}`,
			inbox.Event{ID: "wechat/oB/1767225600/CLICK/", Type: "event.CLICK", Key: "wechat/gh_a/oB", Account: "gh_a"}},
		{"notice", `<xml><AppId>wxc</AppId><AuthorizerAppid>wxa</AuthorizerAppid><CreateTime>1767225600</CreateTime><InfoType>unauthorized</InfoType></xml>`,
			inbox.Event{Type: "info.unauthorized", Key: "wechat/wxa", Account: "wxa", Fingerprinted: true}},
		{"WeCom's notice", `<xml><SuiteId>ww1</SuiteId><TimeStamp>1767225600</TimeStamp><InfoType>suite_ticket</InfoType></xml>`,
			inbox.Event{Type: "info.suite_ticket", Key: "wechat/ww1", Account: "ww1", Fingerprinted: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decodeOne(t, test.body)
			test.want.Provider, test.want.Occurred = "wechat", created
			test.want.Payload = []byte(strings.Trim(test.body, "\xef\xbb\xbf \n"))
			if test.want.Fingerprinted && test.want.ID == "" {
				test.want.ID = got.ID
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// A push says the same in XML, in JSON, in CDATA and bare.
func TestFormsAreAlike(t *testing.T) {
	for _, body := range []string{
		`<xml><FromUserName><![CDATA[oB]]></FromUserName><CreateTime><![CDATA[7]]></CreateTime><Event><![CDATA[VIEW]]></Event><EventKey><![CDATA[a&b<c]]></EventKey></xml>`,
		`<xml><FromUserName>oB</FromUserName><CreateTime>7</CreateTime><Event>VIEW</Event><EventKey>a&amp;b&lt;c</EventKey></xml>`,
		"<?xml version='1.0' encoding='utf-8'?>\n<!-- x -->\n<xml>\n<FromUserName>\n oB\t</FromUserName> <CreateTime> 7 </CreateTime><Event>VIEW</Event><EventKey>\r\n<![CDATA[a&b]]><![CDATA[<c]]>\n</EventKey></xml>\n<!-- x -->",
		`<xml><FromUserName a="b">oB</FromUserName><CreateTime>&#55;</CreateTime><Event>VI<!-- -->EW</Event><EventKey>a&#x26;b&#60;c</EventKey></xml>`,
		`{"FromUserName":"oB","CreateTime":7,"Event":"VIEW","EventKey":"a&b<c"}`,
		`{"FromUserName":"oB","CreateTime":"7","Event":"VIEW","EventKey":"a\u0026b\u003cc","MsgId":null,"ToUserName":null}`,
		`{"EventKey":"a&b<c","Event":"VIEW","Event":"VIEW","CreateTime":7,"FromUserName":"oB","MsgId":0}`,
	} {
		if e := decodeOne(t, body); e.ID != "wechat/oB/7/VIEW/a&b<c" || e.Type != "event.VIEW" || e.Key != "wechat/-/oB" || e.Fingerprinted || e.Unknown {
			t.Errorf("%s\n%+v", body, e)
		}
	}
}

func TestReports(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{`{"Event":"e","List":{"MsgID":"1864323726461255681"}}`, "1864323726461255681"},
		{`{"Event":"e","List":{"MsgID":1864323726461255681}}`, "1864323726461255681"},
		{`{"Event":"e","List":[{"MsgID":"1"}]}`, "1"},
		{`{"Event":"e","List":[{"MsgID":"1"},{"MsgID":"1"}]}`, "1"},
		{`{"Event":"e","List":[{"MsgID":"1"},{"MsgID":"2"}]}`, ""},
		{`{"Event":"e","List":[]}`, ""},
		{`{"Event":"e","List":[1,"a",null,{"MsgID":{}}]}`, ""},
		{`{"Event":"e","SubscribeMsgSentEvent":{"List":[{"MsgID":"1"}]}}`, "1"},
		{`{"Event":"e","a":{"b":{"List":{"MsgID":"1"}}}}`, ""},
		{`{"Event":"e","a":[{"List":{"MsgID":"1"}}],"List":[[{"MsgID":"1"}]]}`, ""},
		{`{"Event":"e","MsgID":"5","List":{"MsgID":"1"}}`, "5"},
		{`{"Event":"e","MsgId":"9","MsgID":"5"}`, "9"},
		{`<xml><Event>e</Event><List><MsgID>1</MsgID></List></xml>`, "1"},
		{`<xml><Event>e</Event><List><MsgID>1</MsgID></List><List><MsgID>2</MsgID></List></xml>`, ""},
		{`<xml><Event>e</Event><List><MsgID>1</MsgID></List><List><MsgID>1</MsgID></List></xml>`, "1"},
		{`<xml><Event>e</Event><S><List><MsgID><![CDATA[1]]></MsgID></List></S></xml>`, "1"},
		{`<xml><Event>e</Event><a><b><List><MsgID>1</MsgID></List></b></a></xml>`, ""},
		{`<xml><Event>e</Event><List><MsgID>1<a/></MsgID></List></xml>`, ""},
		{`<xml><Event>e</Event><MsgID>5</MsgID><MsgId>9</MsgId></xml>`, "9"},
	} {
		e := decodeOne(t, test.body)
		if e.MessageID != test.want {
			t.Errorf("%s: message %q, want %q", test.body, e.MessageID, test.want)
		}
		if test.want != "9" && !e.Fingerprinted {
			t.Errorf("%s: MsgID became the identity %s", test.body, e.ID)
		}
	}
}

func TestIdentities(t *testing.T) {
	event := func(from, created, name, key string) string {
		return fmt.Sprintf(`{"FromUserName":%q,"CreateTime":%q,"MsgType":"event","Event":%q,"EventKey":%q}`, from, created, name, key)
	}
	long := strings.Repeat("x", 600)
	seen := make(map[string]string)
	for _, body := range []string{
		`{"MsgId":9007199254740992}`, `{"MsgId":9007199254740993}`, `{"MsgId":"9007199254740993_1"}`, `{"MsgId":-1}`,
		`{"MsgId":"fp/0123"}`, `{"MsgId":"fp%2F0123"}`, `{"MsgId":"raw/1"}`, `{"MsgId":"raw%2F1"}`, `{"MsgId":"a/1/e/"}`, `{"MsgId":"-"}`, `{"MsgId":"%2D"}`,
		`{"MsgId":"` + long + `1"}`, `{"MsgId":"` + long + `2"}`, `{"MsgId":"a\u0000"}`, `{"MsgId":"a\u0001"}`, `{"MsgId":"a\ud800"}`,
		event("a", "1", "e", ""), event("b", "1", "e", ""), event("a", "2", "e", ""), event("a", "1", "f", ""), event("a", "1", "e", "k"),
		event("a/1", "1", "e", ""), event("a", "1/1", "e", ""), event("a", "1", "e/e", ""), event("a", "1", "e", "/k"), event("a%2F1", "1", "e", ""),
		event("a", "1", "e", "k/l"), event("a", "1", "e", "%"), event("a", "1", "e", "%25"), event("fp", "1", "e", "k"),
		event("a", "1", "e", long), event("a", "1", "e", long+"x"), event("a"+long, "1", "e", ""),
		event("", "1", "e", ""), event("a", "", "e", ""), event("a", "1", "", "k"), event("sys", "1", "e", ""),
		`{"MsgType":"event","FromUserName":"sys","CreateTime":"1","Event":"e","UserID":"two"}`,
		`{"MsgType":"text","FromUserName":"a","CreateTime":1,"Content":"one"}`,
		`{"MsgType":"text","FromUserName":"a","CreateTime":1,"Content":"two"}`,
		`{"action":"CheckContainerPath"}`, `<xml><action>CheckContainerPath</action></xml>`,
		`{"MsgType":"text","MsgID":"1"}`, `{"MsgType":"text","msgid":"1"}`, `{"InfoType":"text"}`,
	} {
		e := decodeOne(t, body)
		if other, ok := seen[e.ID]; ok {
			t.Errorf("%.80s\n%.80s\nhave one identity, %s", body, other, e.ID)
		}
		seen[e.ID] = body
	}
	for _, test := range []struct{ body, want string }{
		{event("a/%", "1/2", "e/f", "k/%"), "a%2F%25/1%2F2/e%2Ff/k/%"},
		{event("a", "1", "e", " k "), "a/1/e/ k "},
		{`<xml><FromUserName>a</FromUserName><CreateTime>1</CreateTime><Event>e</Event><EventKey><![CDATA[ k ]]></EventKey></xml>`, "a/1/e/ k "},
		{`{"MsgId":"a/%"}`, "a%2F%25"},
	} {
		if e := decodeOne(t, test.body); e.ID != "wechat/"+test.want {
			t.Errorf("%s: %s, want %s", test.body, e.ID, test.want)
		}
	}
	// The same push has the same identity, whatever is around it.
	text := `{"MsgType":"text","FromUserName":"a","CreateTime":1,"Content":"one"}`
	if decodeOne(t, text).ID != decodeOne(t, "\xef\xbb\xbf"+text+"\n").ID {
		t.Error("space around a push changes its fingerprint")
	}
}

func TestTypesAndKeys(t *testing.T) {
	for _, test := range []struct {
		body, kind, key string
		unknown         bool
	}{
		{`{"MsgType":"text","ToUserName":"g","FromUserName":"o"}`, "text", "g/o", false},
		{`{"MsgType":"notsure","ToUserName":"g","FromUserName":"o"}`, "notsure", "g/o", true},
		{`{"MsgType":"a b/c","ToUserName":"g"}`, "?", "g", true},
		{`{"MsgType":"event","Event":"SCAN","ToUserName":"g","FromUserName":"o"}`, "event.SCAN", "g/o", false},
		{`{"MsgType":"event","Event":"scan","ToUserName":"g","FromUserName":"o"}`, "event.scan", "g/o", true},
		{`{"MsgType":"event","ToUserName":"g"}`, "event.-", "g", true},
		{`{"Event":"SCAN","FromUserName":"o"}`, "event.SCAN", "-/o", false},
		{`{"MsgType":"event","Event":"change_contact","ToUserName":"ww","FromUserName":"sys"}`, "event.change_contact", "ww", false},
		{`{"InfoType":"authorized","AppId":"wxc"}`, "info.authorized", "wxc", false},
		{`{"InfoType":"new","AppId":"wxc","AuthorizerAppid":"wxa"}`, "info.new", "wxa", true},
		{`{"action":"CheckContainerPath"}`, "action.CheckContainerPath", "-", false},
		{`{"action":"other"}`, "action.other", "-", true},
		{`{"MsgId":1}`, "-", "-", true},
		{`{"MsgType":"text","ToUserName":"g/h","FromUserName":"o/p"}`, "text", "g%2Fh/o%2Fp", false},
		{`{"MsgType":"text","ToUserName":"g"}`, "text", "g", false},
	} {
		if e := decodeOne(t, test.body); e.Type != test.kind || e.Key != "wechat/"+test.key || e.Unknown != test.unknown {
			t.Errorf("%s: type %s, key %s, unknown %v", test.body, e.Type, e.Key, e.Unknown)
		}
	}
}

func TestCreateTime(t *testing.T) {
	for created, want := range map[string]time.Time{
		"1518774424": time.Unix(1518774424, 0), `"1518774424"`: time.Unix(1518774424, 0),
		"1518774424438": time.UnixMilli(1518774424438), `"1518774424438"`: time.UnixMilli(1518774424438),
		"1518774424007": time.UnixMilli(1518774424007),
		"0":             {}, "-1": {}, `""`: {}, "null": {}, "1.5": {}, "1e9": {}, `"yesterday"`: {}, `"1518774424 "`: {},
		"151877442400000000000": {}, `"15187744244::"`: {}, `"1518774424+10"`: {}, "9999999999999999": {},
	} {
		if e := decodeOne(t, `{"MsgId":1,"CreateTime":`+created+`}`); !e.Occurred.Equal(want) || !e.Occurred.IsZero() && e.Occurred.Location() != time.UTC {
			t.Errorf("created at %s: %v", created, e.Occurred)
		}
	}
}

func TestBadInput(t *testing.T) {
	deep := func(n int) string {
		return "<xml><MsgId>good</MsgId>" + strings.Repeat("<a>", n) + strings.Repeat("</a>", n) + "</xml>"
	}
	for _, body := range []string{
		"", " ", "\xef\xbb\xbf", "good", "7", "null", `"good"`, "\x00", "\xff\xfe<\x00x\x00",
		"{", `{"MsgId":"good"`, `{"MsgId":"good"}{}`, `[{"MsgId":"good"}]`, "{}", `{"Content":"good"}`, `{"msgtype":"good"}`, "{\"MsgId\":\"good\"}\x00",
		`{"MsgId":{"a":"good"}}`, `{"MsgId":true,"MsgType":"good"}`, `{"MsgType":["good"]}`, `{"MsgType":"text","FromUserName":{}}`, `{"Event":"good","EventKey":[1]}`,
		`{"MsgId":"good","MsgId":"better"}`, `{"MsgType":"good","FromUserName":"a","FromUserName":"b"}`, `{"MsgId":1,"MsgId":1.0}`,
		`{"Encrypt":"good"}`, `<xml><Encrypt>good</Encrypt></xml>`, `<xml><MsgId>1</MsgId><Encrypt>good</Encrypt></xml>`,
		strings.Repeat("[", 1<<20), `{"MsgId":"good","a":` + strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20001),
		"<", "<xml", "<xml>", "<xml/>", "<xml></xml>", "<xml>good</xml>", "<xml><MsgId>good</MsgId>", "<xml><MsgId>good</xml>", "<xml><MsgId>good</MsgID></xml>",
		"<xml><MsgId>good</MsgId></xml><xml/>", "<xml><MsgId>good</MsgId></xml>good", "<xml><MsgId>good</MsgId></xml><![CDATA[]]>", "<xml><MsgId>good</MsgId></xml></xml>",
		"<msg><MsgId>good</MsgId></msg>", "<XML><MsgId>good</MsgId></XML>", "<a:xml><MsgId>good</MsgId></a:xml>", "<xml><a:MsgId>good</a:MsgId></xml>",
		"<xml><MsgId>good</MsgId><MsgId>better</MsgId></xml>", "<xml><MsgId>good<b/></MsgId></xml>", "<xml><MsgType>good<b>x</b></MsgType></xml>",
		"<xml><a><MsgId>good</MsgId></a></xml>",
		`<!DOCTYPE xml [<!ENTITY a "good">]><xml><MsgId>&a;</MsgId></xml>`,
		`<!DOCTYPE xml [<!ENTITY a SYSTEM "file:///etc/passwd">]><xml><MsgId>&a;</MsgId></xml>`,
		`<!DOCTYPE xml><xml><MsgId>good</MsgId></xml>`, `<xml><!DOCTYPE good><MsgId>good</MsgId></xml>`,
		`<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]><xml><MsgId>&c;</MsgId></xml>`,
		"<xml><MsgId>&good;</MsgId></xml>", "<xml><MsgId>&#0;good</MsgId></xml>", "<xml><MsgId>&#x110000;good</MsgId></xml>", "<xml><MsgId>good & bad</MsgId></xml>",
		"<xml><MsgId>go\x00od</MsgId></xml>", "<xml><MsgId>go\xffod</MsgId></xml>", "<xml><!-- \xff --><MsgId>good</MsgId></xml>", "<xml><MsgId>good\x01</MsgId></xml>",
		`<?xml version="1.0" encoding="GBK"?><xml><MsgId>good</MsgId></xml>`, `<?xml version="1.1"?><xml><MsgId>good</MsgId></xml>`,
		`<xml><MsgId>good</MsgId><?xml version="1.0"?></xml>`, "<xml><MsgId good>good</MsgId></xml>", "<xml><MsgId><![CDATA[good</MsgId></xml>",
		deep(65), deep(100000), strings.Repeat("<xml>", 1<<18),
	} {
		events, err := checkEvents(t, source(t), []byte(body))
		if err == nil || len(events) != 0 || strings.Contains(err.Error(), "good") || len(err.Error()) > 200 {
			t.Errorf("%.80q: %d events, %v", body, len(events), err)
		}
	}
	for _, body := range []string{
		"\xef\xbb\xbf{\"MsgId\":\"good\"}", "\n{ \"MsgId\" : \"good\" }\t", `{"\u004dsgId":"good"}`, "{\"MsgId\":\"good\",\"Content\":\"\xff\"}",
		`{"MsgId":"good","Content":"\u0000"}`, "\xef\xbb\xbf<xml><MsgId>good</MsgId></xml>", "<xml><MsgId>good</MsgId><a></a><b/></xml>",
		`<?xml version="1.0" encoding="UTF-8"?><xml><MsgId>good</MsgId></xml>`, "<?xml version=\"1.0\"?>\n<?pi x?><xml><MsgId>good</MsgId></xml>", deep(64),
		"<xml>stray text<MsgId>good</MsgId></xml>", `<xml xmlns="x"><MsgId>good</MsgId></xml>`, "<xml><MsgId>good</MsgId><a:MsgId>x</a:MsgId><m><MsgId>x</MsgId></m></xml>",
		`{"MsgId":"good","List":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
	} {
		if e := decodeOne(t, body); e.ID != "wechat/good" {
			t.Errorf("%.80q: %s", body, e.ID)
		}
	}
}

// Thousands of repeated elements are one event still.
func TestManyElements(t *testing.T) {
	body := "<xml><Event>e</Event>" + strings.Repeat("<List><MsgID>1</MsgID></List>", 50000) + "</xml>"
	if e := decodeOne(t, body); e.MessageID != "1" {
		t.Errorf("message %q", e.MessageID)
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range webhooktest.Files(f, "testdata/bodies", "", ".xml", ".json") {
		f.Add(b.Data)
	}
	f.Add([]byte(`<!DOCTYPE x [<!ENTITY a "a">]><xml><MsgId>&a;</MsgId></xml>`))
	f.Add([]byte("<xml><a:MsgId>1</a:MsgId><MsgId><![CDATA[fp/]]>\x01</MsgId></xml>"))
	f.Add([]byte(`{"MsgId":"\ud800","List":[{"MsgID":1},[]],"CreateTime":"15187744244::"}`))
	s := source(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := checkEvents(t, s, body)
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		for _, e := range events {
			if e.Payload[0] == '<' {
				checkXML(t, e.Payload)
			}
		}
	})
}

// checkXML reads what was taken for XML with the whole of encoding/xml.
func checkXML(t *testing.T, payload []byte) {
	d := xml.NewDecoder(bytes.NewReader(payload))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("decoded what is not XML: %v", err)
		}
		if _, ok := token.(xml.Directive); ok {
			t.Fatal("decoded XML with a document type")
		}
	}
}
