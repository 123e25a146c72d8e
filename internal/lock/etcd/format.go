package etcd

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ownFormat is the value of the key of the format: the version of the values of holds and of the history, which have the form of package record.
// A version of ftplockd with another one must read this one too, and may write its own only after all servers can read it. Format 1 was never
// released.
const ownFormat = "2"

// FormatError reports that another version of ftplockd wrote the keys, in a format that this one cannot read.
type FormatError struct {
	Prefix string
	Found  string // the format of the keys
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("another version of ftplockd wrote the locks below %s in format %q, and this one reads only format %q: "+
		"upgrade this server, or remove the keys of an earlier build while no server runs", e.Prefix, e.Found, ownFormat)
}

func (k keys) format() string { return string(k) + "format" }

// checkFormat returns a *FormatError unless this version can read the keys.
func (k keys) checkFormat(kv *mvccpb.KeyValue) error {
	if kv == nil || string(kv.Value) == ownFormat {
		return nil
	}
	return &FormatError{Prefix: strings.TrimSuffix(string(k), "/"), Found: string(kv.Value)}
}

// putFormat writes the format.
func (k keys) putFormat() clientv3.Op { return clientv3.OpPut(k.format(), ownFormat) }
