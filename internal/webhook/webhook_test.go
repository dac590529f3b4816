package webhook

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The reader sees what encoding/json sees, in every kind of spacing.
func TestReaderAgainstEncodingJSON(t *testing.T) {
	const text = `{"a":[1,-2.5e+10,true,false,null,"","x\"y\\","\u00e4\/","]}"],"b":{"c":{},"d":[],"e":[[],[{}]]},"\u0066":"{","g h":0}`
	spaced := strings.NewReplacer(",", " ,\n\t", ":", "\r :  ", "[", "[ ", "]", " ]", "{", "{ ", "}", "\n}").Replace
	for _, text := range []string{text, spaced(`{"a":[1,2,[]],"b":{"c":{},"d":"x"}}`), `[]`, `{}`, `"x"`, `12`, ` null `, "\"\xff\""} {
		v, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var want any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if got := tree(v); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %v\nwant %v", text, got, want)
		}
	}
}

func tree(v Value) any {
	switch {
	case v.IsObject():
		m := make(map[string]any)
		for x := range v.Members() {
			m[string(x.Name)] = tree(x.Value)
		}
		return m
	case v.IsArray():
		list := make([]any, 0)
		for x := range v.Elements() {
			list = append(list, tree(x))
		}
		return list
	case v.IsNull():
		return nil
	case v[0] == 't', v[0] == 'f':
		return v[0] == 't'
	}
	text, _ := v.Text()
	if v[0] != '"' {
		return json.Number(text)
	}
	return text
}

func TestReaderStops(t *testing.T) {
	v, _ := Parse([]byte(`{"a":[1,2],"b":2}`))
	for m := range v.Members() {
		if string(m.Raw) != `"a":[1,2]` {
			t.Errorf("raw %s", m.Raw)
		}
		for e := range m.Value.Elements() {
			if string(e) != "1" {
				t.Errorf("first element %s", e)
			}
			break
		}
		break
	}
	for range Value("7").Members() {
		t.Error("a number with members")
	}
	for range v.Elements() {
		t.Error("an object with elements")
	}
	// What is appended to a part does not spoil the body behind it.
	for m := range v.Members() {
		_ = append(m.Value, 'x')
		_ = append(m.Raw, 'x')
	}
	if string(v) != `{"a":[1,2],"b":2}` {
		t.Errorf("the body became %s", v)
	}
}

func TestParseErrorsQuoteNothing(t *testing.T) {
	for _, body := range []string{"", " ", "{\"secret\":1", "secret", "{\"secret\"}", "\"secret", "{\"secret\":\"\x00\"}", "{}secret"} {
		if _, err := Parse([]byte(body)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestPhone(t *testing.T) {
	for in, want := range map[string]string{
		"15550003001": "15550003001", "+15550003001": "15550003001", "+1 (555) 000-3001": "15550003001", "1.555": "1555",
		"": "", "+": "", "US.1": "", "1x": "", "１": "", "120363@g.us": "",
	} {
		if got := Phone(in); got != want {
			t.Errorf("Phone(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestKey(t *testing.T) {
	long := strings.Repeat("x", 400)
	parts := [][]string{{"a"}, {"b"}, {""}, {"-"}, {"%2D"}, {"a", "b"}, {"a/b"}, {"a%2Fb"}, {"", "a"}, {"a", ""},
		{"\x00"}, {"\x01"}, {"\xff"}, {"\xfe"}, {long + long}, {long, long}, {long, long + "x"}, {strings.Repeat("/", 500)}}
	seen := make(map[string]bool)
	for _, p := range parts {
		k := Key("p", p...)
		if seen[k] || !Plain(k) || !strings.HasPrefix(k, "p/") {
			t.Errorf("key %q of %q", k, p)
		}
		seen[k] = true
	}
	if k := Key("p", "a", "b"); k != "p/a/b" {
		t.Errorf("key %s", k)
	}
}

func TestPlainAndKeep(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "ä/ =": true, strings.Repeat("x", 512): true,
		"": false, strings.Repeat("x", 513): false, "a\x00": false, "a\t": false, "a\u0085": false, "\xff": false, "a\ufffd": false,
	} {
		if Plain(s) != want || (Keep(s) == s) != (want || s == "") {
			t.Errorf("Plain(%q) = %v", s, Plain(s))
		}
	}
}

func TestWord(t *testing.T) {
	for s, want := range map[string]string{"a.B_9-": "a.B_9-", "": "-", "a b": "?", "ä": "?", "a/b": "?", strings.Repeat("x", 129): "?"} {
		if got := Word(s); got != want {
			t.Errorf("Word(%q) = %q", s, got)
		}
	}
}

func TestDigestKeepsFieldsApart(t *testing.T) {
	a, b := Digest([]byte("ab"), []byte("c")), Digest([]byte("a"), []byte("bc"))
	if a == b || len(a) != 32 || a != Digest([]byte("ab"), []byte("c")) || Digest() == Digest(nil) {
		t.Errorf("%s, %s", a, b)
	}
}

func TestSeconds(t *testing.T) {
	if at, ok := Seconds("1760000000"); !ok || !at.Equal(time.Unix(1760000000, 0)) || at.Location() != time.UTC {
		t.Errorf("%v, %v", at, ok)
	}
	for _, s := range []string{"", "+1", "-1", "1.0", "1e3", " 1", "253402300800", "99999999999999999999"} {
		if _, ok := Seconds(s); ok {
			t.Errorf("Seconds(%q) is a time", s)
		}
	}
}

func TestTime(t *testing.T) {
	if at := Time("2025-10-09T10:53:20.5+02:00"); !at.Equal(time.UnixMilli(1760000000500)) || at.Location() != time.UTC {
		t.Errorf("%v", at)
	}
	for _, s := range []string{"", "1760000000", "2025-10-09", "0000-12-31T23:59:59Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"} {
		if at := Time(s); !at.IsZero() {
			t.Errorf("Time(%q) is %v", s, at)
		}
	}
}

func TestCheck(t *testing.T) {
	at := time.Unix(1000, 0)
	dead := Secret{Value: "s", NotAfter: at.Add(-1)}
	live := Secret{Value: "s"}
	early := Secret{Value: "s", NotBefore: at.Add(1)}
	mac := Sum("s", []byte("a"), []byte("b"))
	for _, test := range []struct {
		secrets []Secret
		want    Match
	}{
		{[]Secret{{Value: "x"}}, NoMatch}, {[]Secret{dead}, NotLive}, {[]Secret{early}, NotLive},
		{[]Secret{live}, LiveMatch}, {[]Secret{live, dead}, LiveMatch}, {[]Secret{dead, {Value: "x"}, live}, LiveMatch},
	} {
		if got := Check(test.secrets, at, mac, []byte("ab")); got != test.want {
			t.Errorf("%d secrets: %d, want %d", len(test.secrets), got, test.want)
		}
	}
	if Check([]Secret{live}, at, mac, []byte("abc")) != NoMatch || Check([]Secret{live}, at, nil, []byte("ab")) != NoMatch {
		t.Error("another body or no signature matches")
	}
}
