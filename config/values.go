package config

import (
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Duration is written as "90s", "10m" or "1h30m". It is a struct because go-toml would read a number as nanoseconds.
type Duration struct{ time.Duration }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf(`%q: must be a duration in quotes, such as "90s", "10m" or "1h30m", or "0"`, text)
	case t < 0:
		return fmt.Errorf("%q: must not be negative", text)
	}
	d.Duration = t
	return nil
}

// String returns [time.Duration.String] without zeros at its end: "10m", not "10m0s".
func (d Duration) String() string {
	text := d.Duration.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Mode is the permission bits of a file. It is written as "0644".
type Mode struct{ fs.FileMode }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mode) UnmarshalText(text []byte) error {
	bits, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil {
		return fmt.Errorf(`%q: must be an octal mode in quotes, such as "0644"`, text)
	}
	m.FileMode = fs.FileMode(bits)
	return nil
}

// Size is a number of bytes. It is written as "64MiB", "1GiB" or "0".
type Size struct{ Bytes int64 }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if before, found := strings.CutSuffix(number, suffix); found {
			number, unit = before, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	switch {
	case err != nil || unit == 1 && n != 0:
		return fmt.Errorf(`%q: must be a size in quotes, such as "512KiB", "64MiB" or "1GiB", or "0"`, text)
	case n < 0 || n > math.MaxInt64/unit:
		return fmt.Errorf("%q: out of range", text)
	}
	s.Bytes = n * unit
	return nil
}

// PortRange is a range of TCP ports, both ends included. The zero value is no range. It is written as "30000-32767", "30000" or "".
type PortRange struct{ First, Last uint16 }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *PortRange) UnmarshalText(text []byte) error {
	*r = PortRange{}
	if len(text) == 0 {
		return nil
	}
	low, high, isRange := strings.Cut(string(text), "-")
	if !isRange {
		high = low
	}
	first, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	last, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	switch {
	case err1 != nil || err2 != nil || first == 0 || last == 0:
		return fmt.Errorf(`%q: must be a range of ports, such as "30000-32767", or ""`, text)
	case first > last:
		return fmt.Errorf(`%q: the range is reversed; did you mean "%d-%d"?`, text, last, first)
	}
	*r = PortRange{uint16(first), uint16(last)}
	return nil
}

func (r PortRange) contains(port uint64) bool {
	return r.Last != 0 && uint64(r.First) <= port && port <= uint64(r.Last)
}

// Network is an address or a network. It is written as "10.0.0.5" or "10.0.0.0/8".
type Network struct{ netip.Prefix }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *Network) UnmarshalText(text []byte) error {
	if addr, err := netip.ParseAddr(string(text)); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		n.Prefix = netip.PrefixFrom(addr, addr.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(string(text))
	switch {
	case err != nil:
		return fmt.Errorf(`%q: must be an address or a network, such as "10.0.0.5" or "10.0.0.0/8"`, text)
	case p.Addr().Is4In6():
		return fmt.Errorf("%q: write it as a network of IPv4", text)
	case p.Masked() != p:
		return fmt.Errorf(`%q: has bits set after the mask; did you mean "%s"?`, text, p.Masked())
	}
	n.Prefix = p
	return nil
}

// Automatic is the mode of automatic locks. It is written as true, false or "report".
type Automatic string

// The values of an Automatic.
const (
	AutomaticOff    Automatic = "false"
	AutomaticOn     Automatic = "true"
	AutomaticReport Automatic = "report" // refuses nothing, and logs what it would refuse
)

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Automatic) UnmarshalText(text []byte) error {
	switch v := Automatic(text); v {
	case AutomaticOff, AutomaticOn, AutomaticReport:
		*a = v
		return nil
	}
	return fmt.Errorf(`%q: must be true, false or "report"`, text)
}

// On reports whether the lock is automatic, or reports what it would refuse.
func (a Automatic) On() bool { return a == AutomaticOn || a == AutomaticReport }
