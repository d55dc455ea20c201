package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes; 0 means that the program chooses ("auto").
type Size int64

// sizeUnits are the units a user may write, longest suffix first where one ends
// with another.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"PiB", 1 << 50},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"PB", 1e15},
}

// UnmarshalText reads a size: a decimal number and a unit. A bare number or a
// bare G is refused, for nobody can tell which unit was meant.
func (s *Size) UnmarshalText(text []byte) error {
	in := string(text)
	if in == "auto" {
		*s = 0
		return nil
	}
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(in, u.name)
		if !ok {
			continue
		}
		number = strings.TrimRight(number, " ")
		if strings.HasPrefix(number, "-") {
			return fmt.Errorf("%q is negative: write a size above zero, for example 500GiB", in)
		}
		if !isDecimal(number) {
			break
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			break
		}
		bytes := n * float64(u.bytes)
		if bytes >= math.MaxInt64 {
			return fmt.Errorf("%q is more than any disk holds: write a smaller size, for example 500GiB", in)
		}
		if bytes < 1 {
			return fmt.Errorf("%q is nothing: write a size above zero, for example 500GiB, or auto", in)
		}
		*s = Size(bytes)
		return nil
	}
	if strings.HasPrefix(in, "-") {
		return fmt.Errorf("%q is negative: write a size above zero, for example 500GiB", in)
	}
	return fmt.Errorf("%q is not a size: write a number and a unit, for example 500GiB or 500GB", in)
}

// MarshalText writes the size in the largest binary unit that divides it.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the size as a user writes it.
func (s Size) String() string {
	if s == 0 {
		return "auto"
	}
	for _, u := range slices.Backward(sizeUnits) {
		if strings.HasSuffix(u.name, "iB") && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	for _, u := range slices.Backward(sizeUnits) {
		if !strings.HasSuffix(u.name, "iB") && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatFloat(float64(s)/(1<<10), 'f', -1, 64) + "KiB"
}

// isDecimal reports whether s is digits with at most one point between them:
// none of the exponents, signs, hex and names that ParseFloat takes as well.
func isDecimal(s string) bool {
	whole, fraction, point := strings.Cut(s, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return digits(whole) && (!point || digits(fraction))
}

// Duration is a length of time, never negative.
type Duration time.Duration

// UnmarshalText reads a duration with its unit, for example 90s or 1m30s.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and a unit, for example 500ms, 30s or 5m", text)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative: write a duration of zero or more, for example 30s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration without the zero units that time.Duration
// prints.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns the duration as a user writes it.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Seconds returns so many seconds as they are shown to people: with three digits that count, and
// whole from ten on.
func Seconds(s float64) Duration {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return Duration(d)
}

// ID is a user or group number. Self means the one who mounts.
type ID int64

// Self is the ID of the one who mounts.
const Self ID = -1

// UnmarshalText reads a number below 2^32-1, which the kernel keeps for "no id".
func (i *ID) UnmarshalText(text []byte) error {
	if string(text) == "self" {
		*i = Self
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil || n == math.MaxUint32 {
		return fmt.Errorf("%q is not a user or group number: write a number from 0 to 4294967294, or self", text)
	}
	*i = ID(n)
	return nil
}

// MarshalText writes the number, or self.
func (i ID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// String returns the number, or self.
func (i ID) String() string {
	if i == Self {
		return "self"
	}
	return strconv.FormatInt(int64(i), 10)
}

// Or returns the number, or own for Self.
func (i ID) Or(own int) uint32 {
	if i == Self {
		return uint32(own)
	}
	return uint32(i)
}

// Mode is permission bits, written in octal.
type Mode uint32

// UnmarshalText reads octal permission bits from 0 to 0777.
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("%q is not a umask: write octal digits from 000 to 777, for example 022", text)
	}
	*m = Mode(n)
	return nil
}

// MarshalText writes three octal digits.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns three octal digits.
func (m Mode) String() string { return fmt.Sprintf("%03o", uint32(m)) }
