// Package archtest holds the repository's rules about itself: who may import
// whom, where unsafe may be used, how packages are named, how long a file may be.
// It has no code besides its tests.
package archtest
