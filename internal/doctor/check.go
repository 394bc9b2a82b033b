package doctor

import "slices"

// Judge says of each fact whether it will do, and how to mend it. Pure.
func Judge(c *Config, f *Facts) Report {
	return newReport(c.Node, slices.Concat(
		kernelChecks(c, f), placeChecks(c, f), deviceChecks(c, f), mtuChecks(c, f), locatorChecks(c, f), agentChecks(c, f)))
}
