package main

import (
	"bytes"
	_ "embed"
	"regexp"
	"strings"
	"testing"
)

//go:embed main.go
var source string

func TestPage(t *testing.T) {
	var page bytes.Buffer
	if err := run(t.Context(), "", true, &page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`pawl_seqgen_numbers_total{mode="single"`, `pawl_dedup_claims_total{answer="acquired"`, `pawl_order_wait_seconds_bucket`,
		`pawl_lanes_failed_total{account="account-`, `pawl_order_gaps_total{event="skipped"`,
		`pawl_inbox_worked_total{`, `pawl_dlq_letters{`, `pawl_dlq_tries_total{`,
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	// What the comment says to alert on is there, by that name.
	comment, _, _ := strings.Cut(source, "package main")
	names := regexp.MustCompile(`pawl_[a-z_]+`).FindAllString(comment, -1)
	if len(names) < 25 {
		t.Errorf("the comment has %d names", len(names))
	}
	for _, name := range names {
		if !strings.Contains(page.String(), "# TYPE "+name+" ") && name != "pawl_dlq_job_changes_total" { // which is counted when it happens
			t.Errorf("the page has no %s", name)
		}
	}
	if t.Failed() {
		t.Log(page.String())
	}
}
