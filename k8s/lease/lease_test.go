package lease

import (
	"testing"
	"time"
)

func TestFree(t *testing.T) {
	const d = 15 * time.Second
	for _, c := range []struct {
		name string
		r    record
		age  time.Duration
		want bool
	}{
		{"none", record{}, 0, true},
		{"let go", record{version: "1"}, 0, true},
		{"ours", record{holder: "me", version: "1"}, 0, true},
		{"another's, fresh", record{holder: "you", version: "1"}, d - 1, false},
		{"another's, stale", record{holder: "you", version: "1"}, d, true},
		{"another's, its own duration", record{holder: "you", version: "1", duration: time.Minute}, d, false},
		{"another's, its own short duration", record{holder: "you", version: "1", duration: time.Second}, time.Second, true},
	} {
		if got := free(c.r, "me", c.age, d); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestAgeIsOurOwn holds that a record's age counts from when we first saw it.
func TestAgeIsOurOwn(t *testing.T) {
	var o observer
	t0 := time.Unix(1000, 0)
	if o.see(record{version: "1"}, t0) != 0 || o.see(record{version: "1"}, t0.Add(9*time.Second)) != 9*time.Second {
		t.Error("the age of an unchanged record")
	}
	if o.see(record{version: "2"}, t0.Add(10*time.Second)) != 0 {
		t.Error("a renewal did not start it anew")
	}
}

func TestTimesAreChecked(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no options")
	}
}
