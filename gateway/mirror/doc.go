// Package mirror decides which MAC_Binding rows the followers of a group must have, given the
// rows its source learned.
//
// It is pure: time is an argument and no database is spoken to. A Mirror remembers the rows of
// follower ports with their UUIDs (an update by index scans the table: 98 a second at 50,000 rows,
// by UUID tens of thousands), plans operations, and is told what became of each. One goroutine
// owns a Mirror.
//
//	source row appears or has a new MAC   every follower has it at once, by insert or update
//	source timestamp moves                followers' timestamps follow, at most once a cooldown
//	source row goes                       nothing: followers' rows age by themselves
//
// A timestamp is the time of writing in milliseconds, never 0 (northd deletes such a row) and
// never before the one it replaces.
package mirror
