package attrs

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A change keeps what it does not understand, and refuses where that cannot be done.
func TestChangesKeepWhatTheyDoNotUnderstand(t *testing.T) {
	set := &SetXAttr{Name: "user.ours", Value: []byte("1")}
	got, err := set.Apply(`{"user.number":7,"security.capability":"AA==","user.bad":"*"}`)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := parseXAttrs(got); err != nil || len(all) != 4 || string(all["user.number"]) != "7" || string(all["user.bad"]) != `"*"` {
		t.Errorf("it became %q, %v", all, err)
	}
	if names := Names(got); !slices.Equal(names, []string{"user.ours"}) {
		t.Errorf("it shows %q", names)
	}
	for _, r := range got {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~%", r) {
			t.Errorf("%q is not escaped in %q", r, got)
		}
	}
	if _, err := set.Apply("not JSON"); !errors.Is(err, syscall.EIO) {
		t.Errorf("over what cannot be read: %v", err)
	}
	for _, text := range []string{"", "{}", "%7B%7D", "null", "[]", "%", "{"} {
		if names := Names(text); len(names) > 0 {
			t.Errorf("%q shows %q", text, names)
		}
	}
}
