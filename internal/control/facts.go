package control

import "strings"

// Facts says which facts of MLSD and MLST a client has asked for with OPTS MLST (RFC 3659 section 7.9): the i-th bit
// stands for factNames[i].
type Facts uint

// The facts. They are sent in this order.
const (
	FactType Facts = 1 << iota
	FactSize
	FactModify
	FactPerm
	FactUnique
	FactMode
	allFacts = 1<<iota - 1
)

// factNames are written in lower case, because PHP programs look for `type`; RFC 3659 section 7.5 leaves it open.
var factNames = [...]string{"type", "size", "modify", "perm", "unique", "unix.mode"}

// parseFacts reads the argument of OPTS MLST. Names that are not known are passed over.
func parseFacts(list string) Facts {
	var set Facts
	for want := range strings.SplitSeq(strings.ToLower(list), ";") {
		for i, name := range factNames {
			if name == want {
				set |= 1 << i
			}
		}
	}
	return set
}

// String lists the names as the reply to OPTS MLST does: `type;size;`.
func (s Facts) String() string {
	var b strings.Builder
	for i, name := range factNames {
		if s&(1<<i) != 0 {
			b.WriteString(name + ";")
		}
	}
	return b.String()
}

// feature is the line of FEAT (RFC 3659 section 7.8): the facts that are on carry a star.
func (s Facts) feature() string {
	return starred("MLST ", factNames[:], func(i int) bool { return s&(1<<i) != 0 })
}

// starred lists names for FEAT, with a star behind those that are on.
func starred(begin string, names []string, on func(i int) bool) string {
	var b strings.Builder
	b.WriteString(begin)
	for i, name := range names {
		b.WriteString(name)
		if on(i) {
			b.WriteByte('*')
		}
		b.WriteByte(';')
	}
	return b.String()
}
