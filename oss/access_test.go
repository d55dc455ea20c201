package oss

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheFirstRefusalOfTheKeysIsKnownUntilARequestSucceeds(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		code   string
		want   string
	}{
		"unknown key":       {http.StatusForbidden, "InvalidAccessKeyId", "InvalidAccessKeyId (403)"},
		"wrong signature":   {http.StatusForbidden, "SignatureDoesNotMatch", "SignatureDoesNotMatch (403)"},
		"expired token":     {http.StatusForbidden, "SecurityTokenExpired", "SecurityTokenExpired (403)"},
		"skewed clock":      {http.StatusForbidden, "RequestTimeTooSkewed", "RequestTimeTooSkewed (403)"},
		"disabled user":     {http.StatusForbidden, "UserDisable", "UserDisable (403)"},
		"another status":    {http.StatusBadRequest, "InvalidAccessKeyId", "InvalidAccessKeyId (400)"},
		"object for ever":   {http.StatusConflict, "FileImmutable", ""},
		"no such object":    {http.StatusNotFound, "NoSuchKey", ""},
		"malformed request": {http.StatusBadRequest, "InvalidArgument", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusing := true
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
					if refusing {
						refuse(w, row.status, row.code)
						return
					}
					serveRange(w, r)
				})
				if a := b.client.Access(); a.Refused || b.client.access.refused.Load() {
					t.Errorf("before any request: %+v", a)
				}
				began := time.Now()
				for _, ask := range []func(*bubble) error{hostileCalls["get"], hostileCalls["list"], hostileCalls["put"], hostileCalls["head"]} {
					if err := ask(b); err == nil {
						t.Fatal("it is not refused")
					}
					a := b.client.Access()
					if a.Refused != (row.want != "") || a.Refused && !a.Since.Equal(began) {
						t.Errorf("refused since %s: %+v", began, a)
					}
					time.Sleep(time.Second)
				}
				refusing = false
				if err := b.readSome(t.Context(), Demand); err != nil {
					t.Fatal(err)
				}
				if a := b.client.Access(); a != (AccessStatus{}) {
					t.Errorf("after a success: %+v", a)
				}
			})
		})
	}
}

func TestEachRequestShowsWhetherAccessIsRefused(t *testing.T) {
	for name, ask := range hostileCalls {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				refuse(w, http.StatusForbidden, "InvalidAccessKeyId")
			})
			if ask(b) == nil || !b.client.Access().Refused {
				t.Errorf("%s: %+v", name, b.client.Access())
			}
		})
	}
}

func TestARightIsRefusedForAllNamesAfterThreeInARow(t *testing.T) {
	type asked struct {
		call, name string
		refused    bool
	}
	for name, row := range map[string]struct {
		asked []asked
		// want is whether access counts as refused after each, since how many requests.
		want  []bool
		since int
	}{
		"one key, whatever is asked": {
			[]asked{{"get", "a", true}, {"head", "a", true}, {"put", "a", true}, {"get", "a", true}, {"get", "a", true}},
			[]bool{false, false, false, false, false},
			0,
		},
		"two keys in turn": {
			[]asked{{"get", "a", true}, {"get", "b", true}, {"get", "a", true}, {"get", "b", true}},
			[]bool{false, false, false, false},
			0,
		},
		"many keys, and others between": {
			[]asked{{"get", "a", true}, {"get", "b", true}, {"get", "x", false}, {"get", "c", true}, {"get", "d", true}},
			[]bool{false, false, false, false, false},
			0,
		},
		"three keys": {
			[]asked{{"get", "a", true}, {"get", "a", true}, {"head", "b", true}, {"put", "c", true}, {"get", "a", true}},
			[]bool{false, false, false, true, true},
			0,
		},
		"three prefixes": {
			[]asked{{"list", "a/", true}, {"list", "b/", true}, {"list", "c/", true}},
			[]bool{false, false, true},
			0,
		},
		"back, and one key again": {
			[]asked{{"get", "a", true}, {"get", "b", true}, {"get", "c", true}, {"get", "x", false}, {"get", "a", true}, {"get", "b", true}},
			[]bool{false, false, true, false, false, false},
			0,
		},
		"back, and all again": {
			[]asked{{"get", "a", true}, {"get", "x", false}, {"get", "a", true}, {"get", "b", true}, {"get", "c", true}},
			[]bool{false, false, false, false, true},
			2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusing := false
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
					if refusing {
						refuse(w, http.StatusForbidden, "AccessDenied")
						return
					}
					serveRange(w, r)
				})
				began := time.Now()
				for i, a := range row.asked {
					refusing = a.refused
					err := askFor(b, a.call, a.name)
					if a.refused != errors.Is(err, ErrAccessDenied) {
						t.Fatalf("%+v: %v", a, err)
					}
					got := b.client.Access()
					if got.Refused != row.want[i] {
						t.Errorf("after request %d, %+v: %+v", i, a, got)
					}
					since := began.Add(time.Duration(row.since) * time.Second)
					if got.Refused && (!got.Since.Equal(since) || got.Reason != "AccessDenied (403)") {
						t.Errorf("after request %d: %+v, want since %s", i, got, since)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// askFor makes one request about name.
func askFor(b *bubble, call, name string) (err error) {
	store := b.client.As(Demand)
	switch call {
	case "head":
		_, err = store.Head(b.Context(), name)
	case "list":
		_, err = store.List(b.Context(), ListRequest{Prefix: name, MaxKeys: 1000})
	case "put":
		_, err = store.Put(b.Context(), name, strings.NewReader("content"), PutOptions{})
	default:
		o := object
		o.Key = name
		_, err = store.ReadRange(b.Context(), RangeRequest{Object: o, Offset: 1000, Buffer: make([]byte, 100)})
	}
	return err
}
