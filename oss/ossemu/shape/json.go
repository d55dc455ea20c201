package shape

import (
	"bytes"
	"encoding/json"
	"time"
)

// durationText is a duration written as 30ms.
type durationText time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d durationText) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *durationText) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err == nil {
		*d = durationText(v)
	}
	return err
}

type latencyText struct {
	Median durationText `json:"median"`
	Sigma  float64      `json:"sigma"`
	Floor  durationText `json:"floor"`
}

// shapeText is a Shape as people write it.
type shapeText struct {
	Profile               string       `json:"profile,omitempty"`
	Get                   latencyText  `json:"get"`
	Head                  latencyText  `json:"head"`
	Put                   latencyText  `json:"put"`
	List                  latencyText  `json:"list"`
	ListPerEntry          durationText `json:"list_per_entry"`
	Copy                  latencyText  `json:"copy"`
	CopyRate              Rate         `json:"copy_rate"`
	Complete              latencyText  `json:"complete"`
	CompletePerPart       durationText `json:"complete_per_part"`
	TailProbability       float64      `json:"tail_probability"`
	DownloadPerConnection Rate         `json:"download_per_connection"`
	UploadPerConnection   Rate         `json:"upload_per_connection"`
	Spread                float64      `json:"spread"`
	Download              Rate         `json:"download"`
	Upload                Rate         `json:"upload"`
	QPS                   float64      `json:"qps"`
	RoundTrip             durationText `json:"rtt"`
	Seed                  uint64       `json:"seed"`
}

func (l Latency) text() latencyText {
	return latencyText{durationText(l.Median), l.Sigma, durationText(l.Floor)}
}

func (t latencyText) latency() Latency {
	return Latency{time.Duration(t.Median), t.Sigma, time.Duration(t.Floor)}
}

func (s Shape) text() shapeText {
	return shapeText{
		Get: s.Get.text(), Head: s.Head.text(), Put: s.Put.text(),
		List: s.List.text(), ListPerEntry: durationText(s.ListPerEntry),
		Copy: s.Copy.text(), CopyRate: s.CopyRate,
		Complete: s.Complete.text(), CompletePerPart: durationText(s.CompletePerPart),
		TailProbability:       s.TailProbability,
		DownloadPerConnection: s.DownloadPerConnection, UploadPerConnection: s.UploadPerConnection, Spread: s.Spread,
		Download: s.Download, Upload: s.Upload, QPS: s.QPS, RoundTrip: durationText(s.RoundTrip), Seed: s.Seed,
	}
}

// MarshalJSON writes durations as 30ms and rates as 600MB.
func (s Shape) MarshalJSON() ([]byte, error) { return json.Marshal(s.text()) }

// UnmarshalJSON reads what MarshalJSON writes. A field that is absent keeps its
// value; a "profile" replaces all of them first.
func (s *Shape) UnmarshalJSON(b []byte) error {
	var named struct {
		Profile *string `json:"profile"`
	}
	if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	base := *s
	if named.Profile != nil {
		var err error
		if base, err = Profile(*named.Profile); err != nil {
			return err
		}
	}
	t := base.text()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return err
	}
	*s = Shape{
		Get: t.Get.latency(), Head: t.Head.latency(), Put: t.Put.latency(),
		List: t.List.latency(), ListPerEntry: time.Duration(t.ListPerEntry),
		Copy: t.Copy.latency(), CopyRate: t.CopyRate,
		Complete: t.Complete.latency(), CompletePerPart: time.Duration(t.CompletePerPart),
		TailProbability:       t.TailProbability,
		DownloadPerConnection: t.DownloadPerConnection, UploadPerConnection: t.UploadPerConnection, Spread: t.Spread,
		Download: t.Download, Upload: t.Upload, QPS: t.QPS, RoundTrip: time.Duration(t.RoundTrip), Seed: t.Seed,
	}
	return nil
}
