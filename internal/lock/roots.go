package lock

import "slices"

// Roots returns the directories that all locks lie below, for those who look for directories that
// are locks: the fixed prefixes of the rules without those that lie below another. nil
// means anywhere: some rule, such as **/*_lock, has no fixed prefix.
func (r *Rules) Roots() []Name {
	var roots []Name
	for _, rule := range r.rules {
		p := fixedPrefix(rule.glob)
		if p == "/" {
			return nil
		}
		covered := func(other Name) bool { return p.Within(other) }
		if slices.ContainsFunc(roots, covered) {
			continue
		}
		roots = slices.DeleteFunc(roots, func(other Name) bool { return other.Within(p) })
		roots = append(roots, p)
	}
	return roots
}
