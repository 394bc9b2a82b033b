package status

import "time"

// Learning is what became of the claims that frames made.
type Learning struct {
	// Open says that learning writes: its sources are in sync.
	Open    bool `json:"open"`
	Entries int  `json:"entries"` // keys known, static and others' included
	// Reported are the observations of the workers; RingFull those that found no
	// room and are made again by the next frame; Limited those that ports made
	// beyond their limit.
	Reported uint64 `json:"reported"`
	RingFull uint64 `json:"ringFull"`
	Limited  uint64 `json:"limited"`
	// Observations counts those that were looked at; Refused by why they changed
	// nothing; Writes by what they are for.
	Observations uint64            `json:"observations"`
	Refused      map[string]uint64 `json:"refused,omitempty"`
	Writes       map[string]uint64 `json:"writes,omitempty"`
	Conflicts    uint64            `json:"conflicts"`
	Failures     uint64            `json:"failures"`
	Events       map[string]uint64 `json:"events,omitempty"` // moved, frozen, limits ...
	Probes       uint64            `json:"probes"`
	// RefreshesWaiting wait for their share of the budget.
	RefreshesWaiting int `json:"refreshesWaiting"`
}

// Move is a learned binding that changed hands, as this node learned of it.
type Move struct {
	Time         time.Time  `json:"time"`
	Network      string     `json:"network"`
	Key          string     `json:"key"` // MAC or address
	FromNode     string     `json:"fromNode"`
	FromEndpoint string     `json:"fromEndpoint,omitempty"`
	Node         string     `json:"node"`
	Endpoint     string     `json:"endpoint,omitempty"`
	MAC          string     `json:"mac,omitempty"` // of an address
	Moves        int        `json:"moves"`         // in the window that runs
	FrozenUntil  *time.Time `json:"frozenUntil,omitempty"`
}
