package flows

import "testing"

// What is rendered is spelled canonically: printing and reading it back changes nothing.
func TestRenderedFlowsAreCanonical(t *testing.T) {
	for name, in := range goldens {
		for _, f := range Render(in) {
			if got, err := Parse(f.String()); err != nil || got != f {
				t.Errorf("%s: %s reads back as %s (%v)", name, f, got, err)
			}
		}
	}
}

func TestParseSpellings(t *testing.T) {
	for line, want := range map[string]string{
		"actions=drop": "cookie=0x0,table=0,priority=32768 actions=drop",
		" cookie=0x1, duration=1.5s, table=1, n_packets=2, n_bytes=3, idle_age=4, priority=7,in_port=\"x\" actions=drop": "cookie=0x1,table=1,priority=7,in_port=\"X\" actions=drop",
		"priority=1,ct_state=+trk-new+est,ip actions=output:LOCAL,output:NORMAL,output:3,pop_vlan":                       "cookie=0x0,table=0,priority=1,ip,ct_state=+est-new+trk actions=LOCAL,NORMAL,output:3,strip_vlan",
		"priority=1,in_port=65534,ct_mark=2 actions=ct(table=1,zone=64000,nat(src=1.2.3.4))":                             "cookie=0x0,table=0,priority=1,in_port=LOCAL,ct_mark=0x2 actions=ct(nat(src=1.2.3.4),table=1,zone=64000)",
		"priority=1,eth_dst=AA:bb:CC:00:00:01,nd_target=FD00:0::2,icmp6,icmpv6_type=0x87 actions=output:65534":           "cookie=0x0,table=0,priority=1,icmp6,dl_dst=aa:bb:cc:00:00:01,icmp_type=135,nd_target=fd00::2 actions=LOCAL",
		"priority=1 actions=ct(commit,zone=1,exec(set_field:0x1->ct_mark)),output:1":                                     "cookie=0x0,table=0,priority=1 actions=ct(commit,exec(set_field:0x1->ct_mark),zone=1),output:1",
	} {
		f, err := Parse(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if f.String() != want {
			t.Errorf("%s\n got %s\nwant %s", line, f, want)
		}
	}
	for _, line := range []string{"", "priority=1", "priority=x actions=drop", "table=300 actions=drop", "cookie=zz actions=drop"} {
		if f, err := Parse(line); err == nil {
			t.Errorf("%q parsed as %s", line, f)
		}
	}
}

// Whatever parses is stable: its canonical spelling parses to itself.
func FuzzParse(f *testing.F) {
	for _, in := range goldens {
		for _, fl := range Render(in) {
			f.Add(fl.String())
		}
	}
	f.Add("priority=1,ct_state=+trk-new actions=ct(commit,zone=1,exec(set_field:0x1->ct_mark)),output:1")
	f.Fuzz(func(t *testing.T, line string) {
		once, err := Parse(line)
		if err != nil {
			return
		}
		twice, err := Parse(once.String())
		if err != nil || twice != once {
			t.Fatalf("%q: %q then %q (%v)", line, once, twice, err)
		}
	})
}
