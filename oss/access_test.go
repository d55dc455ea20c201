package oss

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheFirstRefusalIsKnownUntilARequestSucceeds(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		code   string
		want   string
	}{
		"unknown key":       {http.StatusForbidden, "InvalidAccessKeyId", "InvalidAccessKeyId (403)"},
		"wrong signature":   {http.StatusForbidden, "SignatureDoesNotMatch", "SignatureDoesNotMatch (403)"},
		"expired token":     {http.StatusForbidden, "SecurityTokenExpired", "SecurityTokenExpired (403)"},
		"missing right":     {http.StatusForbidden, "AccessDenied", "AccessDenied (403)"},
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
			b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, http.StatusForbidden, "AccessDenied") })
			if ask(b) == nil || !b.client.Access().Refused {
				t.Errorf("%s: %+v", name, b.client.Access())
			}
		})
	}
}
