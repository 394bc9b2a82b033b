package doctor

import "strings"

func agentChecks(c *Config, f *Facts) []Check {
	a, g := about{"agent", ""}, &f.Agent
	if g.Denied {
		return []Check{a.unmade("runs", g.Err)}
	}
	if g.elsewhere() {
		return []Check{
			a.warn("runs", "give doctor the agent's --run-dir: without it this is judged as if none ran", "an agent of node %s runs, and does not answer at %s", c.Node, c.RunDir),
			a.none("leftovers", "an agent runs"),
		}
	}
	if !g.Runs {
		return append([]Check{a.none("runs", "%v", g.Err)}, leftoverCheck(a, f))
	}
	if g.Err != nil {
		return []Check{a.fail("answers", "see its log; stop it and start it anew", "%v", g.Err)}
	}
	out := []Check{buildCheck(a, g), nodeCheck(a, c, g)}
	s := &g.Status
	if !s.Ready {
		out = append(out, a.fail("ready", "mend what it waits for; picot show status follows it", "not ready; it waits for: %s", orNone(s.Waiting)))
	} else {
		out = append(out, a.ok("ready", "ready, %d ports, %d uplinks, %d nodes", len(s.Ports), len(s.Uplinks), len(s.Nodes)))
	}
	if s.GatewayReady != nil && !*s.GatewayReady {
		out = append(out, a.fail("gateway", "picot show gateway says which database or bridge is missing", "the gateway is not ready"))
	}
	for _, p := range s.Problems {
		out = append(out, a.warn("problem", "as the text says; picot show status follows it", "%s", p))
	}
	for _, h := range g.Health {
		b := about{"agent", h.Name}
		switch {
		case !h.Live:
			out = append(out, b.fail("health", "start the agent anew, and keep its log", "it hangs since %v", h.Age))
		case !h.Ready:
			out = append(out, b.fail("health", "as the text says", "%s", strings.Join(h.Problems, "; ")))
		default:
			out = append(out, b.ok("health", "well"))
		}
	}
	return append(out, leftoverCheck(a, f))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "nothing it names"
	}
	return strings.Join(list, "; ")
}

func nodeCheck(a about, c *Config, g *Agent) Check {
	if g.Status.Node != c.Node {
		return a.fail("node", "give doctor the agent's --node-name and --run-dir", "the agent at %s is node %s, not %s", c.RunDir, g.Status.Node, c.Node)
	}
	return a.ok("node", "%s", g.Status.Node)
}

func buildCheck(a about, g *Agent) Check {
	switch {
	case g.Build == "":
		return a.warn("build", "run picot doctor as root, in the PID namespace of the agent", unmadeFor, errNoBuild)
	case g.SameBuild:
		return a.ok("build", "%s, this one, process %d", g.Build, g.PID)
	}
	return a.warn("build", "start this build's agent beside it: it takes its place without losing a frame", "process %d is of another build: %s", g.PID, g.Build)
}

func leftoverCheck(a about, f *Facts) Check {
	g := &f.Agent
	switch {
	case g.LeftErr != nil && f.Host.Capabilities != nil:
		return a.withoutRights("leftovers", g.LeftErr)
	case g.LeftErr != nil:
		return a.unmade("leftovers", g.LeftErr)
	case len(g.Leftovers) == 0:
		return a.ok("leftovers", "none")
	case g.Runs:
		return a.warn("leftovers", "the agent sweeps them within its --sweep-grace; else stop it, and: picot cleanup", "not used by the agent: %s", strings.Join(g.Leftovers, "; "))
	}
	return a.warn("leftovers", "start the agent, which takes over what it needs, or: picot cleanup", "of an agent that does not run: %s", strings.Join(g.Leftovers, "; "))
}
