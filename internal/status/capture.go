package status

// Trailers of a capture: why it ended, and how many frames are in it or were
// missed. Without them it broke off.
const (
	CaptureEnd    = "Picot-End"
	CaptureFrames = "Picot-Frames"
	CaptureMissed = "Picot-Missed"
)
