//go:build !unix

package main

// maxDescriptors is not known here.
func maxDescriptors() int { return 0 }
