// Package manifests makes a directory of YAML files the source of truth: what
// labs and single machines use in the place of a Kubernetes API.
//
// The directory is read as kubectl apply -f DIR would: every file ending in
// .yaml, .yml or .json, not its subdirectories; any number of documents to a
// file and of objects to a List; YAML 1.1 as the API server reads it; an unset
// namespace is default. Names that begin with a dot are no manifests: editors
// and ConfigMap volumes keep their own things there.
//
// Decoding is strict. What is wrong is said with file, line, object, field,
// reason and mend, and costs only itself:
//
//   - an object that cannot be taken stays as it was last good, as an apply the
//     API server refuses leaves the stored object alone;
//   - while a document cannot be read at all, nothing of its file goes away;
//   - of two objects with one name the first stays, of two that claim the same
//     ID, locator, MAC, address or device the holder (internal/desired);
//   - a directory that is gone, or a file that cannot be read, takes nothing
//     with it. A file that is deleted does.
//
// Two kinds are not ours and are read for the gateway: core v1 Node and
// ovn-kubernetes' UplinkState, as kubectl get -o yaml gives them. Of these only
// what is used is checked; all other fields may stand.
//
// [Load] reads once. [Watch] follows the directory by fsnotify, and by looking
// now and then for what inotify does not report (network file systems, targets
// of symbolic links). Both are free of global state; everything they hand out
// belongs to the receiver.
package manifests
