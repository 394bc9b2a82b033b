package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"picot.dev/picot/internal/status"
)

// TestRowsAreTheTable: a table written row by row is the text it is as a whole.
func TestRowsAreTheTable(t *testing.T) {
	for _, rows := range [][]status.FDBEntry{
		{}, {{Network: "red", MAC: "02:00:00:00:00:01", Where: "<v1>"}}, make([]status.FDBEntry, 3), make([]status.FDBEntry, 2000),
	} {
		want, got := httptest.NewRecorder(), httptest.NewRecorder()
		reply(want, http.StatusOK, rows)
		replyRows(got, rows)
		if got.Body.String() != want.Body.String() || got.Header().Get("Content-Type") != want.Header().Get("Content-Type") {
			t.Errorf("%d rows: %.300s\nwant %.300s", len(rows), got.Body, want.Body)
		}
	}
}
