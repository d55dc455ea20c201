package oss

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aliyun/credentials-go/credentials"
)

// cloudProvider asks Alibaba Cloud's credentials library. The library keeps
// what it got and fetches anew shortly before the end, inside the call and
// without a lock: hence one goroutine asks it, and requests use what is held
// here.
type cloudProvider struct {
	// config is nil for the library's default chain.
	config *credentials.Config
	chosen credentials.Credential
}

func (p *cloudProvider) read(ctx context.Context) (*keys, error) {
	if p.chosen == nil {
		c, err := credentials.NewCredential(p.config)
		if err != nil {
			return nil, oneLine(err)
		}
		p.chosen = c
	}
	type result struct {
		model *credentials.CredentialModel
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
	k := &keys{
		id:     deref(got.model.AccessKeyId),
		secret: newSecret(deref(got.model.AccessKeySecret)),
		token:  newSecret(deref(got.model.SecurityToken)),
	}
	if k.id == "" || k.secret.empty() {
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
	text := clean(err.Error(), 400)
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// clean returns at most limit bytes of text without control characters.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = fmt.Sprintf("%s…", strings.ToValidUTF8(text[:limit], ""))
	}
	return text
}
