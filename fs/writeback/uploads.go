package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// abortRetry is how long after a failure useless uploads are aborted again.
const abortRetry = 10 * time.Second

// optionsSum tells options from others.
func optionsSum(o oss.PutOptions) uint64 {
	var h oss.CRC64Writer
	fmt.Fprintf(&h, "%q", o.ContentType)
	for _, name := range slices.Sorted(maps.Keys(o.Meta)) {
		fmt.Fprintf(&h, "%q%q", name, o.Meta[name])
	}
	return uint64(h)
}

// createUpload begins an upload as w says, but for its ID and options, to be given to unuse. That
// it was asked for is on the disk before, so that one whose answer is lost is found
// and aborted, whatever happens.
func (s *Space) createUpload(ctx context.Context, w state.Upload, o oss.PutOptions) (oss.MultipartUpload, error) {
	w.Options = optionsSum(o)
	s.mu.Lock()
	asked, before := s.ask(w)
	pos := s.journal.End()
	s.mu.using[asked]++
	s.mu.Unlock()
	defer s.unuse(asked)
	if err := s.journal.Sync(pos); err != nil {
		return oss.MultipartUpload{}, err
	}
	u, err := s.bucket.CreateUpload(ctx, w.Key, o)
	if err != nil {
		s.mu.Lock()
		s.mu.asks[asked] = ask{at: time.Now()}
		s.mu.Unlock()
		if permanent(err) && !before {
			// It was refused: there is nothing to look for.
			s.uploadEnded(asked)
		}
		return oss.MultipartUpload{}, err
	}
	w.ID = u.ID
	begun := &state.Group{Records: []state.Record{&state.UploadBegun{Upload: w}}}
	if !before {
		begun.Records = append(begun.Records, &state.UploadEnded{ID: asked})
	}
	s.mu.Lock()
	pos = s.record(begun)
	s.mu.using[u.ID]++
	if w.PartSize != 0 {
		s.mu.newest[w.File] = u.ID
	}
	s.mu.Unlock()
	if err := s.journal.Write(pos); err != nil {
		s.unuse(u.ID)
		return oss.MultipartUpload{}, err
	}
	return u, nil
}

// ask notes that an upload is asked for and returns the name that stands for it; before
// says that it stands for an earlier one as well, which is still to be looked for. However
// often the answer is lost, a key has one such name. s.mu is held.
func (s *Space) ask(w state.Upload) (id string, before bool) {
	for _, u := range s.mu.Uploads {
		if u.Asked() && u.Key == w.Key && s.mu.using[u.ID] == 0 {
			return u.ID, true
		}
	}
	w.ID = fmt.Sprint(state.AskedUpload, s.mu.NextOrder)
	s.record(&state.UploadBegun{Upload: w})
	return w.ID, false
}

// findUpload returns an upload of a file that was begun before, with the same options,
// to be given to unuse; idle, only one that nobody works at.
func (s *Space) findUpload(key string, file order.FileID, partSize int64, o oss.PutOptions, idle bool) (oss.MultipartUpload, bool) {
	options := optionsSum(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	var found state.Upload
	for _, u := range s.mu.Uploads {
		if u.Key != key || u.File != file || u.PartSize != partSize || u.Options != options || u.Asked() || idle && s.mu.using[u.ID] > 0 {
			continue
		}
		if u.ID == s.mu.newest[file] {
			found = u
			break
		}
		if found.ID == "" || u.ID < found.ID {
			found = u
		}
	}
	if found.ID == "" {
		return oss.MultipartUpload{}, false
	}
	s.mu.using[found.ID]++
	s.mu.newest[file] = found.ID
	return oss.MultipartUpload{Key: found.Key, ID: found.ID}, true
}

// use says that somebody works at an upload.
func (s *Space) use(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.using[id]++
}

// unuse says that somebody does not work at an upload any more.
func (s *Space) unuse(id string) {
	s.mu.Lock()
	if s.mu.using[id]--; s.mu.using[id] <= 0 {
		delete(s.mu.using, id)
	}
	s.mu.Unlock()
	wake(s.settleNow)
}

// uploadEnded forgets an upload.
func (s *Space) uploadEnded(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endUpload(id)
}

// endUpload does that; s.mu is held.
func (s *Space) endUpload(id string) {
	delete(s.mu.asks, id)
	if u, ok := s.mu.Uploads[id]; ok {
		if s.mu.newest[u.File] == id {
			delete(s.mu.newest, u.File)
		}
		s.record(&state.UploadEnded{ID: id})
	}
}

// aborted forgets an upload, unless its name stands for another one by now.
func (s *Space) aborted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.using[id] == 0 {
		s.endUpload(id)
	}
}

// abortUseless aborts uploads that nobody needs any more. It returns when to do it
// again, if something failed.
func (s *Space) abortUseless(ctx context.Context) (retry time.Time) {
	s.mu.Lock()
	if at := s.mu.abortNext; time.Now().Before(at) {
		s.mu.Unlock()
		return at
	}
	var useless []state.Upload
	for _, u := range s.mu.Uploads {
		if s.mu.using[u.ID] > 0 || s.useful(&u) {
			continue
		}
		if at := s.lookAgain(&u); at.IsZero() {
			useless = append(useless, u)
		} else if retry.IsZero() || at.Before(retry) {
			retry = at
		}
	}
	s.mu.Unlock()
	var failed error
	for _, u := range useless {
		var err error
		began := time.Now()
		if u.Asked() {
			err = s.abortUnknown(ctx, u.Key)
		} else {
			err = s.bucket.AbortUpload(ctx, oss.MultipartUpload{Key: u.Key, ID: u.ID})
		}
		switch {
		case err == nil && u.Asked():
			if at := s.looked(u.ID, began); !at.IsZero() && (retry.IsZero() || at.Before(retry)) {
				retry = at
			}
		case err == nil:
			s.aborted(u.ID)
		case ctx.Err() != nil:
			return time.Time{}
		case errors.Is(err, errCreating):
			// Whoever does it wakes us.
		default:
			failed = fmt.Errorf("abort an upload of %q: %w", u.Key, err)
		}
	}
	if failed == nil {
		return retry
	}
	s.log.Warn("aborting uploads failed and will be tried again", "wait", abortRetry, "err", failed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.abortNext = time.Now().Add(abortRetry)
	return s.mu.abortNext
}

// useful says whether what is there of an upload may still be needed: that of what is
// being written, and one of what waits. s.mu is held.
func (s *Space) useful(u *state.Upload) bool {
	if u.PartSize == 0 || u.Asked() {
		return false
	}
	if w, st := s.mu.writing[u.File], s.mu.Files[u.File]; w != nil && st != nil && w.upload.ID == u.ID && w.opens > 0 {
		if st.Linked && st.Staged && st.Key == u.Key && st.PubGen == w.pubGen {
			return true
		}
	}
	k := s.mu.Keys[u.Key]
	if k == nil {
		return false
	}
	op := s.mu.Ops[k.Pending]
	if op == nil {
		op = s.mu.Ops[k.Flight]
	}
	if kept := s.mu.KeptOf[u.File]; kept != 0 {
		op = s.mu.Ops[kept]
	}
	if op == nil || op.Kind != order.Put || op.File != u.File || op.Key != u.Key {
		return false
	}
	// While an operation waits, its file may be written again and again.
	newest, known := s.mu.Uploads[s.mu.newest[u.File]]
	return !known || newest.ID == u.ID || newest.Key != u.Key
}

// errCreating means that an upload of the key is being created.
var errCreating = errors.New("an upload is being created")

// abortUnknown aborts the uploads to a key of which no record speaks.
func (s *Space) abortUnknown(ctx context.Context, key string) error {
	uploads, err := s.bucket.ListUploads(ctx, key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	for id := range s.mu.using {
		if u := s.mu.Uploads[id]; u.Asked() && u.Key == key {
			s.mu.Unlock()
			return errCreating
		}
	}
	unknown := uploads[:0]
	for _, u := range uploads {
		if _, ours := s.mu.Uploads[u.ID]; u.Key == key && !ours {
			unknown = append(unknown, u)
		}
	}
	s.mu.Unlock()
	for _, u := range unknown {
		if err := s.bucket.AbortUpload(ctx, u); err != nil {
			return err
		}
	}
	return nil
}
