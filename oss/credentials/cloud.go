package credentials

import (
	"context"
	"errors"

	cloud "github.com/aliyun/credentials-go/credentials"

	"github.com/pailfs/pailfs/oss/internal/oneline"
)

// cloudProvider asks Alibaba Cloud's credentials library. The library keeps
// what it got and fetches anew shortly before the end, inside the call and
// without a lock: hence one goroutine asks it, and requests use what is held
// here.
type cloudProvider struct {
	// config is nil for the library's default chain.
	config *cloud.Config
	chosen cloud.Credential
}

func (p *cloudProvider) read(ctx context.Context) (*Keys, error) {
	if p.chosen == nil {
		c, err := cloud.NewCredential(p.config)
		if err != nil {
			return nil, oneLine(err)
		}
		p.chosen = c
	}
	type result struct {
		model *cloud.CredentialModel
		err   error
	}
	// The library knows no context, but bounds its own requests to seconds. If ctx
	// ends first the result is dropped with the provider's life.
	answer := make(chan result, 1)
	chosen := p.chosen
	go func() {
		model, err := chosen.GetCredential()
		answer <- result{model, err}
	}()
	var got result
	select {
	case got = <-answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if got.err != nil {
		// After a failure the default chain stays with its last member for good. A new
		// one begins at the front.
		p.chosen = nil
		return nil, oneLine(got.err)
	}
	k := &Keys{
		ID:     deref(got.model.AccessKeyId),
		Secret: newSecret(deref(got.model.AccessKeySecret)),
		Token:  newSecret(deref(got.model.SecurityToken)),
	}
	if k.ID == "" || k.Secret.Empty() {
		p.chosen = nil
		return nil, errors.New("the credentials library returned empty keys")
	}
	return k, nil
}

func (p *cloudProvider) changed() bool { return false }

func (p *cloudProvider) forget() { p.chosen = nil }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// oneLine keeps a foreign error to one line of readable length.
func oneLine(err error) error {
	text := oneline.Of(err.Error(), 400)
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
