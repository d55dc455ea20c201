package plugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// attempt is what is remembered of a pod that may have been held to some nodes, or refused.
type attempt struct {
	pod *v1.Pod
	// since is when it was first held to some of the nodes, count how often; released
	// says that it was woken because that has lasted too long.
	since    time.Time
	count    int
	released bool
}

// settle is how long news of nodes are gathered before refused pods are tried again: a
// scheduler that starts hears of ten thousand at once.
const settle = 100 * time.Millisecond

// attempt returns what is remembered of a pod, and remembers that it is being tried.
func (p *Plugin) attempt(pod *v1.Pod) attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.refused[pod.UID]
	if a == nil {
		a = &attempt{}
		p.refused[pod.UID] = a
	}
	a.pod = pod
	return *a
}

// restricted remembers that a pod is held to some of the nodes.
func (p *Plugin) restricted(pod *v1.Pod, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.refused[pod.UID]; a != nil {
		a.count++
		if a.since.IsZero() {
			a.since = now
		}
	}
}

// placed forgets a pod that has a node.
func (p *Plugin) placed(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refused, pod.UID)
}

// rouse has wake look soon: news of nodes are for every refused pod, otherwise it is for
// those that waited for another gang.
func (p *Plugin) rouse(news bool) {
	if news {
		p.news.Store(true)
	}
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// wake puts refused pods back into the queue when there is a reason of which the
// scheduler's own events do not tell.
func (p *Plugin) wake(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.woken:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		case <-tick.C:
		}
		if pods := p.ready(time.Now(), p.news.Swap(false)); len(pods) > 0 {
			p.handle.Activate(klog.FromContext(ctx), pods)
		}
	}
}

// ready returns the pods that are worth another attempt: all with news of nodes, else
// those that were held for too long and those that waited for another gang.
func (p *Plugin) ready(now time.Time, news bool) map[string]*v1.Pod {
	turned := map[types.UID]bool{}
	for _, key := range p.gangs.Turned(now) {
		turned[types.UID(key)] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pods := map[string]*v1.Pod{}
	for uid, a := range p.refused {
		starved := !a.released && !a.since.IsZero() && now.Sub(a.since) >= p.starve
		if starved {
			a.released = true
		}
		if news || starved || turned[uid] {
			pods[a.pod.Namespace+"/"+a.pod.Name] = a.pod
		}
	}
	return pods
}
