package ossemu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Admin returns the handler of the administration address. It knows no
// authentication: bind it to loopback.
func (s *Server) Admin() http.Handler { return s.admin }

func (s *Server) newAdmin() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, "ok") })
	m.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.Stats()) })
	m.HandleFunc("POST /stats/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.ResetStats()
		answerJSON(w, "ok")
	})
	m.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { s.answerFaults(w) })
	m.HandleFunc("PUT /faults", s.putFaults)
	m.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		_ = s.SetFaults(nil) // an empty list is never refused
		s.answerFaults(w)
	})
	m.HandleFunc("GET /shape", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.Shape()) })
	m.HandleFunc("PUT /shape", func(w http.ResponseWriter, r *http.Request) { s.putShape(w, r, Shape{}) })
	m.HandleFunc("PATCH /shape", func(w http.ResponseWriter, r *http.Request) { s.putShape(w, r, s.Shape()) })
	m.HandleFunc("PUT /credentials", s.putCredential)
	m.HandleFunc("DELETE /credentials/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.RemoveCredential(r.PathValue("id"))
		answerJSON(w, "ok")
	})
	return m
}

// faultText is a Fault as people write it.
type faultText struct {
	Operation   string    `json:"operation,omitempty"`
	KeyPrefix   string    `json:"key_prefix,omitempty"`
	KeyContains string    `json:"key_contains,omitempty"`
	Kind        FaultKind `json:"kind"`
	Code        string    `json:"code,omitempty"`
	Status      int       `json:"status,omitempty"`
	Delay       string    `json:"delay,omitempty"`
	Bytes       int64     `json:"bytes,omitempty"`
	Skip        int       `json:"skip,omitempty"`
	Every       int       `json:"every,omitempty"`
	Probability float64   `json:"probability,omitempty"`
	Count       int       `json:"count,omitempty"`
}

// MarshalJSON writes the delay as 30ms.
func (f Fault) MarshalJSON() ([]byte, error) {
	t := faultText{
		f.Operation, f.KeyPrefix, f.KeyContains, f.Kind, f.Code, f.Status, "", f.Bytes, f.Skip, f.Every, f.Probability, f.Count,
	}
	if f.Delay != 0 {
		t.Delay = f.Delay.String()
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var t faultText
	if err := decodeStrictly(bytes.NewReader(b), &t); err != nil {
		return err
	}
	*f = Fault{
		t.Operation, t.KeyPrefix, t.KeyContains, t.Kind, t.Code, t.Status, 0, t.Bytes, t.Skip, t.Every, t.Probability, t.Count,
	}
	if t.Delay != "" {
		d, err := time.ParseDuration(t.Delay)
		if err != nil {
			return fmt.Errorf("delay: %w", err)
		}
		f.Delay = d
	}
	return nil
}

func (s *Server) answerFaults(w http.ResponseWriter) {
	faults := s.Faults()
	if faults == nil {
		faults = []Fault{}
	}
	answerJSON(w, faults)
}

func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	var faults []Fault
	if err := decodeStrictly(r.Body, &faults); err != nil {
		badRequest(w, err)
		return
	}
	if err := s.SetFaults(faults); err != nil {
		badRequest(w, err)
		return
	}
	s.answerFaults(w)
}

// putShape sets a shape that is given as changes to base.
func (s *Server) putShape(w http.ResponseWriter, r *http.Request, base Shape) {
	if err := decodeStrictly(r.Body, &base); err != nil {
		badRequest(w, err)
		return
	}
	if err := s.SetShape(base); err != nil {
		badRequest(w, err)
		return
	}
	answerJSON(w, s.Shape())
}

// credentialText is a credential as it is given to PUT /credentials.
type credentialText struct {
	AccessKeyID     string    `json:"access_key_id"`
	AccessKeySecret string    `json:"access_key_secret"`
	SecurityToken   string    `json:"security_token"`
	Expires         time.Time `json:"expires"`
}

func (s *Server) putCredential(w http.ResponseWriter, r *http.Request) {
	var t credentialText
	if err := decodeStrictly(r.Body, &t); err != nil {
		badRequest(w, err)
		return
	}
	if err := s.AddCredential(Credential{
		AccessKeyID: t.AccessKeyID, AccessKeySecret: t.AccessKeySecret, SecurityToken: t.SecurityToken, Expires: t.Expires,
	}); err != nil {
		badRequest(w, err)
		return
	}
	answerJSON(w, "ok")
}

// decodeStrictly refuses fields that do not exist, which are misspelt ones.
func decodeStrictly(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func badRequest(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusBadRequest)
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // who asked is gone
}
