package watchdog

import "unicode/utf8"

func validateName(name string) error {
	switch n := len(name); {
	case n == 0:
		return invalid("empty name")
	case n > MaxName:
		return invalid("name of %d bytes, at most %d", n, MaxName)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return invalid("name %s has a NUL byte at %d", short(name), i)
		}
	}
	if !utf8.ValidString(name) {
		return invalid("name %s is not valid UTF-8", short(name))
	}
	return nil
}

func validScope(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 64
}
