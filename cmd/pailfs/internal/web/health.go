package web

import (
	"encoding/json"
	"net/http"
)

// Health is the answer of /healthz.
type Health struct {
	// Status is "ok" or "failing".
	Status string `json:"status"`
	// Mount is "alive", "dead", "stuck" or an error.
	Mount string `json:"mount"`
	// Credentials is "ok" or why they could not be renewed.
	Credentials string `json:"credentials"`
	// Access is "ok" or since when and why the object store refuses access.
	Access string `json:"access"`
}

// write answers with it.
func (h Health) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if h.Status != "ok" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h) // the client has gone
}
