package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"text/tabwriter"
	"time"

	"picot.dev/picot/internal/status"
)

// TestShowMoves: a line for each, with who had it and who has it, and until when a
// binding that moved too often stays.
func TestShowMoves(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)
	frozen := at.Add(9 * time.Minute)
	body, err := json.Marshal([]status.Move{
		{Time: at, Network: "red", Key: "10.0.0.5", MAC: "02:00:00:00:00:05", FromNode: "node1", FromEndpoint: "default/vm1",
			Node: "node2", Endpoint: "default/vm2", Moves: 6, FrozenUntil: &frozen},
		{Time: at.Add(-time.Second), Network: "red", Key: "02:00:00:00:00:05", FromNode: "node2", Node: "node1", Moves: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
	if err := printMoves(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `TIME                      NETWORK  KEY                FROM               TO                 MOVES  FROZEN UNTIL
2026-03-01T12:00:00.250Z  red      10.0.0.5           node1:default/vm1  node2:default/vm2  6      2026-03-01T12:09:00Z
2026-03-01T11:59:59.250Z  red      02:00:00:00:00:05  node2              node1              1      -
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if err := printMoves(&out, []byte(`{"no": "list"}`)); err == nil {
		t.Error("printed what is no list of moves")
	}
}
