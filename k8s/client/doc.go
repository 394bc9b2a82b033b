// Package client speaks to the API server for the kinds of k8s/api/v1alpha1: a
// typed list, watch, create, merge patch and delete, nothing cached, nothing
// retried but what the server itself asks to be (429 with Retry-After).
//
// A Client is safe for use by any number of goroutines.
package client
