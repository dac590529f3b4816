package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	var page bytes.Buffer
	if err := run(t.Context(), "", true, &page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`pawl_seqgen_numbers_total{mode="single"`, `pawl_dedup_claims_total{answer="acquired"`, `pawl_order_wait_seconds_bucket`,
		`pawl_lanes_failed_total{account="account-`, `pawl_order_gaps_total{event="skipped"`,
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if t.Failed() {
		t.Log(page.String())
	}
}
